SELECT n, <B> OR n = 2 AS r FROM t
SELECT n FROM t WHERE NOT <B>
SELECT t.n, u.n FROM t JOIN u ON <P>
SELECT t.n, u.n FROM t LEFT JOIN u ON <P> AND t.n = u.n
SELECT t.n, u.n FROM t RIGHT JOIN u ON <P>
SELECT t.n, u.n FROM t FULL JOIN u ON t.n = u.n AND <P>
SELECT t.n FROM t SEMI JOIN u ON <P>
SELECT t.n FROM t ANTI JOIN u ON <P>
SELECT t.n, u.n FROM t CROSS JOIN u WHERE <P>
SELECT n FROM t JOIN u USING (n) WHERE <P>
SELECT n FROM t NATURAL JOIN u WHERE <P>
SELECT t.n, u.n FROM t POSITIONAL JOIN u WHERE <B>
SELECT t.n, u.n FROM t ASOF JOIN u ON t.n >= u.n WHERE <B>
SELECT x.r, u.n FROM (SELECT n, <B> AS r FROM t) AS x JOIN u USING (n)
SELECT * FROM (SELECT <L> AS k FROM t) AS x JOIN (SELECT AI.CLASSIFY(b, ['x', 'y']) AS k FROM u) AS y USING (k)
SELECT t.n, l.s FROM t, LATERAL (SELECT <S> AS s) AS l
SELECT t.n, l.s FROM t LEFT JOIN LATERAL (SELECT <S> * u.n AS s FROM u WHERE u.n = t.n) AS l ON TRUE
SELECT <B> AS r, count(*) AS c FROM t GROUP BY <B>
SELECT <L> AS r, sum(<S>) AS c FROM t GROUP BY ALL
SELECT <L> AS r, count(*) AS c FROM t GROUP BY GROUPING SETS ((r), ())
SELECT n % 2 AS k, max(<S>) AS c FROM t GROUP BY k HAVING max(<S>) > 0.1
SELECT n % 2 AS k FROM t GROUP BY k HAVING AI.IF(PROMPT('q {0}', max(a)))
SELECT AI.IF(PROMPT('q {0}', max(a))) AS r FROM t
SELECT n FROM t QUALIFY row_number() OVER (PARTITION BY <B> ORDER BY n) = 1
SELECT n, rank() OVER (ORDER BY <S>) AS r FROM t
SELECT n, sum(n) OVER (PARTITION BY <L> ORDER BY <S>, n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM t
SELECT n, sum(n) OVER w AS r FROM t WINDOW w AS (PARTITION BY <L> ORDER BY n)
SELECT n, sum(<S>) FILTER (WHERE <B>) OVER (ORDER BY n) AS r FROM t
SELECT n, lag(<S>, 1, 0.0) OVER (ORDER BY n) AS r FROM t
SELECT n, first_value(n IGNORE NULLS) OVER (ORDER BY <S>, n) AS r FROM t
SELECT n FROM t ORDER BY <S> NULLS FIRST, n
SELECT n FROM t ORDER BY <S> DESC, n LIMIT 2
SELECT n FROM t ORDER BY n LIMIT (SELECT (count(*) FILTER (WHERE <B>))::BIGINT FROM t)
SELECT n FROM t ORDER BY n LIMIT (2 + <C> * 0)::INT
SELECT n FROM t ORDER BY n OFFSET (SELECT count(*) FROM t WHERE <B>)
SELECT * FROM (VALUES (1, AI.IF('constant')), (2, AI.IF('other'))) AS v(i, r)
VALUES (1, <C>), (2, 0.5)
SELECT n FROM t WHERE n IN (SELECT n FROM u WHERE <U> > 0.2)
SELECT n FROM t WHERE <L> IN ('x', 'z')
SELECT n FROM t WHERE 'x' IN (<L>, a)
SELECT n FROM t WHERE <S> BETWEEN 0.1 AND n
SELECT n FROM t WHERE 0.4 BETWEEN <S> AND <S> + 0.2
SELECT n FROM t WHERE <L> LIKE 'x%'
SELECT n FROM t WHERE 'x' LIKE <L> || '%'
SELECT n FROM t WHERE <L> NOT ILIKE 'X'
SELECT n FROM t WHERE <L> SIMILAR TO '[xz]'
SELECT n FROM t WHERE <L> ~ 'x'
SELECT n FROM t WHERE <L> GLOB 'x*'
SELECT n, <S>::DECIMAL(4, 2) AS r, CAST(<B> AS INT) AS i, TRY_CAST(<L> AS INT) AS j FROM t
SELECT n, <L> COLLATE NOCASE = 'X' AS r FROM t
SELECT n, (d + INTERVAL 1 DAY * <S>) AS r FROM t
SELECT n, (d::TIMESTAMP AT TIME ZONE CASE WHEN <B> THEN 'UTC' ELSE 'Europe/Paris' END)::VARCHAR AS r FROM t
SELECT n, <B> IS DISTINCT FROM (n = 1) AS r, <L> IS NOT DISTINCT FROM 'x' AS s FROM t
SELECT n FROM t WHERE <B> IS NOT TRUE
SELECT n FROM t WHERE <S> > ANY (SELECT <U> FROM u)
SELECT n FROM t WHERE <S> >= ALL (SELECT <U> FROM u WHERE b IS NOT NULL)
SELECT n FROM t WHERE <L> = SOME (['x', 'y'])
SELECT n FROM t WHERE <L> = ANY (SELECT AI.CLASSIFY(b, ['x', 'y']) FROM u)
SELECT n, [<S>, 1][1] AS r, [<B>, NULL] AS l FROM t
SELECT n, {'k': <L>, 'm': {'z': {S}}} AS r FROM t
SELECT n, {'k': {L}}.k AS r, struct_pack(s := <S>) AS s FROM t
SELECT n, MAP {'k': {S}} AS r FROM t
SELECT n, MAP {<L>: n} AS r FROM t WHERE <L> IS NOT NULL
SELECT n, a[1 + <B>::INT:3] AS r FROM t
SELECT n, 'abc'[<B>::INT + 1] AS r FROM t
SELECT n, [x FOR x IN [1, 2, 3] IF x > <S>] AS r FROM t
SELECT n, [AI.IF(PROMPT('q {0}', x)) FOR x IN [a, 'z']] AS r FROM t
SELECT n, list_transform([a, 'z'], lambda x: AI.SCORE(PROMPT('q {0}', x))) AS r FROM t
SELECT n, list_filter([1, 2], lambda x: x > <S>) AS r FROM t
SELECT n, list_reduce([0.1, 0.2], lambda x, y: x + y + <S>) AS r FROM t
SELECT n, CASE <L> WHEN 'x' THEN <S> WHEN 'y' THEN n ELSE -1 END AS r FROM t
SELECT n, CASE WHEN n = 1 THEN 'x' WHEN <B> THEN <L> END AS r FROM t
SELECT n, coalesce(<B>, n = 4) AS r, nullif(<L>, 'x') AS s, greatest(<S>, 0.3) AS g FROM t
SELECT list(<S> ORDER BY n) AS r, list(n ORDER BY <S> DESC, n) AS s FROM t
SELECT string_agg(<L>, ',' ORDER BY n) AS r, count(DISTINCT <L>) AS c FROM t
SELECT quantile_cont(<S>, 0.5) AS r, mode(<L>) FILTER (WHERE n < 4) AS m, arg_max(n, <S>) AS x FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY <S>) AS r FROM t
SELECT mode() WITHIN GROUP (ORDER BY <L>) AS r FROM t
SELECT count(*) FILTER (WHERE <B>) AS r, sum(n) FILTER (<B>) AS s FROM t
SELECT bool_and(<B>) AS r, any_value(<L>) IS NOT NULL AS s FROM t
SELECT DISTINCT <L> AS r FROM t
SELECT DISTINCT ON (<L>) n FROM t ORDER BY <L>, n
SELECT <B> AS r FROM t UNION SELECT <U> > 0.5 FROM u
SELECT n, <S> AS s FROM t UNION ALL BY NAME SELECT <U> AS s, n, b FROM u
SELECT <L> AS l FROM t EXCEPT SELECT 'x'
SELECT n FROM t WHERE <B> INTERSECT ALL SELECT n FROM u WHERE <U> > 0.1
(SELECT n FROM t WHERE <B> LIMIT 9) UNION ALL (SELECT n FROM u WHERE <U> > 0.1)
FROM t WHERE <B>
FROM t SELECT n, <S> AS s ORDER BY n
WITH c AS (SELECT n, <S> AS s FROM t) SELECT c.n, d.n AS m FROM c JOIN c AS d ON c.s < d.s
WITH c AS MATERIALIZED (SELECT n, <B> AS s FROM t) SELECT * FROM c WHERE s
WITH RECURSIVE r(i, s) AS (SELECT 1, <C> UNION ALL SELECT i + 1, AI.SCORE(PROMPT('q {0}', i)) FROM r WHERE i < 4) SELECT * FROM r
WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 5 AND AI.SCORE(PROMPT('z {0}', i)) >= 0) SELECT * FROM r
SELECT * EXCLUDE (d) REPLACE (<L> AS a) FROM t
SELECT * EXCLUDE (d), <S> AS s FROM t
SELECT COLUMNS(['a', 'n']), <B> AS r FROM t
SELECT n AS k, k + <S> AS r, r * 2 AS q FROM t
SELECT <S> AS s, s > 0.3 AS big FROM t WHERE s > 0.1
SELECT unnest([<S>, n]) AS r, n FROM t
SELECT unnest({'p': <S>, 'q': n}) FROM t
SELECT n, (SELECT max(<U>) FROM u WHERE u.n = t.n) AS r FROM t
SELECT n, EXISTS (SELECT 1 FROM u WHERE <P>) AS r FROM t
SELECT n, (SELECT <L>) || a AS r FROM t
SELECT n, ARRAY(SELECT <U> FROM u WHERE u.n = t.n) AS r FROM t
SELECT n, (n, <S>) < (3, 0.5) AS r, ROW(n, <B>) AS w FROM t
SELECT n, -<S> AS r, +<S> AS s, <S> ** 2 AS p, n // 2 + <S> AS q, ~<B>::INT AS t FROM t
SELECT n, <L> || a || <L> AS r, <L>.upper() AS u, a.concat(<L>) AS v FROM t
SELECT n, a -> 'k' AS r FROM (SELECT n, {'k': {S}}::JSON AS a FROM t) AS v
SELECT n, extract('year' FROM d + INTERVAL 1 DAY * <B>::INT) AS r, substring(<L> FROM 1 FOR 1) AS s, position('x' IN <L>) AS p, trim(BOTH 'x' FROM <L>) AS w, overlay('abcd' PLACING <L> FROM 2) AS o FROM t
SELECT n FROM t TABLESAMPLE 100 PERCENT WHERE <B>
SELECT n FROM t WHERE <B> USING SAMPLE 100 PERCENT
SELECT * FROM range((3 + <C> * 0)::INT) AS r(i)
SELECT r.i, t.n FROM t, range(<B>::INT + 1) AS r(i)
SELECT * FROM unnest([AI.IF('constant'), FALSE]) AS v(r)
SUMMARIZE SELECT <S> AS s FROM t
DESCRIBE SELECT <S> AS s, <L> AS l, <B> AS b FROM t
PIVOT (SELECT n, <L> AS l, <S> AS s FROM t) ON l IN ('x', 'y') USING max(s) GROUP BY n
PIVOT t ON n IN (1, 2) USING max(<S>) GROUP BY a
SELECT * FROM (SELECT n, <S> AS s, n * 2.0 AS m FROM t) UNPIVOT (v FOR k IN (s, m))
SELECT n FROM t WHERE a IN (SELECT a FROM t WHERE <B>) AND n NOT IN (SELECT n FROM u WHERE <U> > 0.8)
SELECT GROUPING(<L>) AS g, count(*) AS c FROM t GROUP BY ROLLUP (<L>)
SELECT n FROM t WHERE <B> AND <S> > 0.1 OR <L> = 'x' AND NOT <B>
SELECT n, <B> AND NULL AS r, <B> OR NULL AS s FROM t
SELECT n, IF(<B>, 'p', 'q') AS r, ifnull(<S>, 0) AS s FROM t
SELECT n FROM t WHERE <B> ORDER BY ALL
SELECT n FROM t AS x(a, n, d) WHERE <B>
SELECT k FROM t AS x(a, k, d) WHERE <S> * k > 0.5
SELECT t.n FROM (t JOIN u ON t.n = u.n) WHERE <P>
SELECT s.n FROM t AS s WHERE EXISTS (SELECT 1 FROM t WHERE t.n > s.n AND <B>)
SELECT n FROM t WHERE (CASE WHEN <B> THEN n END) IS NOT NULL
SELECT n, hash(<L>) IS NOT NULL AS r, typeof(<B>) AS ty, <S> IS NULL AS z FROM t
SELECT max(<S>) OVER () AS r FROM t QUALIFY <B>
SELECT n, count(*) OVER (PARTITION BY <B>) AS c FROM t WHERE <L> = 'x' OR n > 2
SELECT n, sum(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) * <S> AS r FROM t
SELECT n FROM t WHERE TRY(<B>)
SELECT n, row(a, <S>) AS r FROM t
SELECT n, <B> AS "AI.IF(x)" FROM t
SELECT list_aggregate([<S>, 0.5], 'max') AS r FROM t
SELECT array_value(<S>, 0.5)::DOUBLE[2] AS r FROM t
SELECT n, <S> NOTNULL AS r FROM t
SELECT t.n, u.n FROM t ASOF LEFT JOIN u ON t.n >= u.n WHERE <U> > 0.2
SELECT n FROM t WHERE 0.4 NOT BETWEEN <S> AND <S> + 0.2
SELECT n FROM (FROM t SELECT *, <S> AS s) WHERE s > 0.2
SELECT printf('%s', <L>) AS r, format('{}', <L>) AS f FROM t
