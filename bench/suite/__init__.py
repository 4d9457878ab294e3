"""The benchmark suite: the same work for Covey and for what people would use instead.

    covey bench suite --help        generate, run, count
    covey bench report FOLDER       report.md, CSV and plots from the result files

Tables and planted answers are made from a seed (`tables`, `truth`); the 50 queries are data
(`queries`), from which SQL, plans, prompts and token counts follow. Shapes and survivors are
those that a public benchmark of AI-SQL publishes; every text is made up here.
"""
