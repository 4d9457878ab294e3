-- One plan a paragraph: a title, the statement, and the plan that `explain` prints for it.
-- Rewritten by `pytest tests/plans --update-golden`.
-- Tables: t(id, k, body), 4 rows; p(pid, k, text), 3 rows.

# A filter: relational conditions first
SELECT id FROM t WHERE AI.IF(PROMPT('Good? {0}', t.body)) AND k = 1
----
1. load t: 2 rows
    where k = 1
2. ask AI.IF(PROMPT('Good? {0}', t.body))
    2 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
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
    2 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
4. ask AI.IF(PROMPT('Short? {0}', p.text))
    0 to 2 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
5. ask AI_JOIN(PROMPT('Same? {0} {1}', t.body, p.text))
    0 to 2 prompts of 6 tokens
    selectivity not known before it runs: 0% to 100%
    in this order: cheapest where no selectivity is known and each is as likely as any other
then DuckDB runs the rest

# Given selectivities order two filters
SELECT id FROM t
WHERE AI.IF(PROMPT('Often? {0}', body), {'selectivity': 0.9})
  AND AI.IF(PROMPT('Rare? {0}', body), {'selectivity': 0.1})
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Rare? {0}', body), {'selectivity': 0.1})
    3 prompts of 4 tokens
    selectivity 10%, as the query says
3. ask AI.IF(PROMPT('Often? {0}', body), {'selectivity': 0.9})
    0 prompts
    selectivity 90%, as the query says
    in this order: cheapest by the selectivities that the query gives
then DuckDB runs the rest

# An outer join's condition is asked for the pairs that the rest of ON leaves
SELECT t.id, p.pid FROM t LEFT JOIN p ON t.k = p.k AND AI.IF(PROMPT('{0} {1}', t.body, p.text))
WHERE t.id < 3
----
1. load t: 2 rows
    where t.id < 3
2. load p: 3 rows
3. ask AI.IF(PROMPT('{0} {1}', t.body, p.text))
    2 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest

# EXISTS over a pair is a semi join
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE p.k < t.k AND AI.IF(PROMPT('{0} {1}', t.body, p.text)))
----
1. load t: 4 rows
2. load p: 3 rows
3. ask AI.IF(PROMPT('{0} {1}', t.body, p.text))
    1 prompt of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest

# LIMIT without an order stops asking
SELECT id FROM t WHERE AI.IF(PROMPT('Good? {0}', body)) LIMIT 1
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Good? {0}', body))
    1 to 3 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
    in batches, until 1 row are found
then DuckDB runs the rest

# LIMIT picks rows before outputs are asked
SELECT id, AI.SCORE(PROMPT('Good? {0}', body)) AS s FROM t ORDER BY id LIMIT 2
----
1. load t: 4 rows
2. keep only the rows that LIMIT lets through
on demand: AI.SCORE(PROMPT('Good? {0}', body))
    because DuckDB decides which rows are left for it
    2 prompts of 4 tokens
then DuckDB runs the rest

# A common table expression is asked once, however often it is read
WITH good AS (SELECT * FROM t WHERE AI.IF(PROMPT('Good? {0}', body)))
SELECT a.id FROM good a JOIN good b USING (k)
----
1. load t: 4 rows
2. ask AI.IF(PROMPT('Good? {0}', body))
    3 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest

# HAVING runs on demand
SELECT k FROM t GROUP BY k HAVING AI.IF(PROMPT('Good? {0}', max(body)))
----
on demand: AI.IF(PROMPT('Good? {0}', max(body)))
    because it is not in a clause that is planned
    2 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest

# Nothing to ask
SELECT count(*) FROM t
----
DuckDB runs all of it

# Pairs that passed are gathered where chains of joins would look each row up
SELECT t.id, p.pid, u.id FROM t JOIN p ON AI.IF(PROMPT('Fits {0} {1}?', t.body, p.text)) JOIN t AS u ON AI.IF(PROMPT('Like {0} {1}?', u.body, p.text))
----
1. load t: 4 rows
2. load p: 3 rows
3. load u: 4 rows
4. ask AI.IF(PROMPT('Fits {0} {1}?', t.body, p.text))
    9 prompts of 6 tokens
    selectivity not known before it runs: 0% to 100%
5. ask AI.IF(PROMPT('Like {0} {1}?', u.body, p.text))
    0 to 9 prompts of 6 tokens
    selectivity not known before it runs: 0% to 100%
    in this order: cheapest where no selectivity is known and each is as likely as any other
6. gather the pairs that passed AI.IF(PROMPT('Fits {0} {1}?', t.body, p.text))
7. gather the pairs that passed AI.IF(PROMPT('Like {0} {1}?', u.body, p.text))
then DuckDB runs the rest

# A random sample of one table is drawn while it is loaded
SELECT id FROM t WHERE random() < 2 AND AI.IF(PROMPT('Good? {0}', body))
----
1. load t: 4 rows
    where random() < 2
2. ask AI.IF(PROMPT('Good? {0}', body))
    3 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest

# A draw beside a join is left to the final statement, whom it rejects is asked too
SELECT t.id FROM t JOIN p USING (k) WHERE random() < 2 AND AI.IF(PROMPT('Good? {0}', body))
----
1. load t: 4 rows
2. load p: 3 rows
3. ask AI.IF(PROMPT('Good? {0}', body))
    3 prompts of 4 tokens
    selectivity not known before it runs: 0% to 100%
then DuckDB runs the rest
