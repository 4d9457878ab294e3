-- One plan a paragraph: a title, the statement, and the plan that `explain` prints for it.
-- Rewritten by `pytest tests/plans --update-golden`.
-- Tables: t(id, k, body), 4 rows; p(pid, k, text), 3 rows.

# A filter: relational conditions first
SELECT id FROM t WHERE AI.IF(PROMPT('Good? {0}', t.body)) AND k = 1
----
1. load t: 2 rows
    where k = 1
2. ask AI.IF(PROMPT('Good? {0}', t.body))
    at most 2 prompts, about 1 tokens of documents
then DuckDB runs the rest

# Two filters and a join: one document before pairs
SELECT t.id, p.pid
FROM t JOIN p ON t.k = p.k AND AI_JOIN(PROMPT('Same? {0} {1}', t.body, p.text))
WHERE AI.IF(PROMPT('Good? {0}', t.body)) AND AI.IF(PROMPT('Short? {0}', p.text)) AND t.id > 1
----
1. load t: 3 rows
    where t.id > 1
2. load p: 3 rows
3. ask AI.IF(PROMPT('Good? {0}', t.body))
    at most 3 prompts, about 2 tokens of documents
4. ask AI.IF(PROMPT('Short? {0}', p.text))
    at most 3 prompts, about 1 tokens of documents
5. ask AI_JOIN(PROMPT('Same? {0} {1}', t.body, p.text))
    at most 9 prompts, about 9 tokens of documents
then DuckDB runs the rest

# The user's word on pass rates orders two filters
SELECT id FROM t
WHERE AI.IF(PROMPT('Often? {0}', body), {'selectivity': 0.9})
  AND AI.IF(PROMPT('Rare? {0}', body), {'selectivity': 0.1})
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Rare? {0}', body), {'selectivity': 0.1})
    at most 4 prompts, about 3 tokens of documents
3. ask AI.IF(PROMPT('Often? {0}', body), {'selectivity': 0.9})
    at most 4 prompts, about 3 tokens of documents
then DuckDB runs the rest

# An outer join's condition is asked for the pairs that the rest of ON leaves
SELECT t.id, p.pid FROM t LEFT JOIN p ON t.k = p.k AND AI.IF(PROMPT('{0} {1}', t.body, p.text))
WHERE t.id < 3
----
1. load t: 2 rows
    where t.id < 3
2. load p: 3 rows
3. ask AI.IF(PROMPT('{0} {1}', t.body, p.text))
    at most 6 prompts, about 5 tokens of documents
then DuckDB runs the rest

# EXISTS over a pair is a semi join
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE p.k < t.k AND AI.IF(PROMPT('{0} {1}', t.body, p.text)))
----
1. load t: 4 rows
2. load p: 3 rows
3. ask AI.IF(PROMPT('{0} {1}', t.body, p.text))
    at most 12 prompts, about 12 tokens of documents
then DuckDB runs the rest

# LIMIT without an order stops asking
SELECT id FROM t WHERE AI.IF(PROMPT('Good? {0}', body)) LIMIT 1
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Good? {0}', body))
    at most 4 prompts, about 3 tokens of documents
    in batches, until 1 row are found
then DuckDB runs the rest

# LIMIT picks rows before outputs are asked
SELECT id, AI.SCORE(PROMPT('Good? {0}', body)) AS s FROM t ORDER BY id LIMIT 2
----
1. load t: 4 rows
2. keep only the rows that LIMIT lets through
on demand: AI.SCORE(PROMPT('Good? {0}', body))
    because DuckDB decides which rows are left for it
then DuckDB runs the rest

# A common table expression is asked once, however often it is read
WITH good AS (SELECT * FROM t WHERE AI.IF(PROMPT('Good? {0}', body)))
SELECT a.id FROM good a JOIN good b USING (k)
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Good? {0}', body))
    at most 4 prompts, about 3 tokens of documents
then DuckDB runs the rest

# HAVING runs on demand
SELECT k FROM t GROUP BY k HAVING AI.IF(PROMPT('Good? {0}', max(body)))
----
on demand: AI.IF(PROMPT('Good? {0}', max(body)))
    because it is not in a clause that is planned
then DuckDB runs the rest

# Nothing to ask
SELECT count(*) FROM t
----
DuckDB runs all of it
