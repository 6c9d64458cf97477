-- Negative acks: redelivery, the retry budget, dead letters.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.dead_letters(queue text)
RETURNS TABLE ("offset" bigint, message_id boolean, transaction_id text, payload text, error text, retry_count int, grp text)
LANGUAGE sql AS $$
    SELECT d."offset", d.message_id = md5(d.transaction_id)::uuid, d.transaction_id, convert_from(d.payload, 'UTF8'), d.error,
           d.retry_count, d.consumer_group
      FROM queen.log_dlq AS d JOIN queen.log_partitions AS p ON p.id = d.partition_id JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE q.name = queue
     ORDER BY d.failed_at;
$$;

-- V-42: with a limit of 2, two failures redeliver and the third dead-letters exactly that message.
-- V-54: each redelivery is there at once.
SELECT queen.log_configure(pg_temp.tenant(), 'q', NULL, NULL, '{"retryLimit": 2}', 'merge') -> 'configured';
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b', 'c');
SELECT ids, attempt FROM pg_temp.pop('q', worker => 1);
SELECT * FROM pg_temp.ack('q', 'p', 1, '{a,b}', '{completed,failed}');
SELECT * FROM pg_temp.cursors('q');
SELECT ids, attempt FROM pg_temp.pop('q', worker => 2);
SELECT * FROM pg_temp.ack('q', 'p', 2, '{b}', '{failed}');
SELECT ids, attempt FROM pg_temp.pop('q', worker => 3);
SELECT * FROM pg_temp.ack('q', 'p', 3, '{b}', '{failed}', errors => '{no luck}');
SELECT * FROM pg_temp.dead_letters('q');
SELECT * FROM pg_temp.cursors('q');
-- The messages after it come again, with the whole budget.
SELECT ids, attempt FROM pg_temp.pop('q', worker => 4);
SELECT * FROM pg_temp.ack('q', 'p', 4, '{c}', '{failed}');
SELECT retries FROM pg_temp.cursors('q');
-- V-53: after a clean batch the budget is full again.
SELECT ids FROM pg_temp.pop('q', worker => 5);
SELECT * FROM pg_temp.ack('q', 'p', 5, '{c}');
SELECT * FROM pg_temp.cursors('q');

-- With a limit of 0 the first failure dead-letters.
SELECT queen.log_configure(pg_temp.tenant(), 'zero', NULL, NULL, '{"retryLimit": 0}', 'merge') -> 'configured';
SELECT base_offset FROM pg_temp.push('zero', 'p', 'a');
SELECT ids FROM pg_temp.pop('zero');
SELECT * FROM pg_temp.ack('zero', 'p', 1, '{a}', '{failed}');
SELECT * FROM pg_temp.dead_letters('zero');
SELECT * FROM pg_temp.cursors('zero');

-- V-43: neither expiries nor retries charge the budget; the attempts count them.
SELECT base_offset FROM pg_temp.push('patient', 'p', 'a');
DO $$
BEGIN
    FOR i IN 1..7 LOOP
        PERFORM pg_temp.pop('patient', worker => i), pg_temp.expire('patient');
        PERFORM pg_temp.pop('patient', worker => i), pg_temp.ack('patient', 'p', i, '{a}', '{retry}');
    END LOOP;
END
$$;
SELECT * FROM pg_temp.cursors('patient');

-- V-44: dlq does not wait for the budget.
SELECT base_offset FROM pg_temp.push('at once', 'p', 'a', 'b');
SELECT ids FROM pg_temp.pop('at once');
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{a}', '{dlq}', errors => '{poison}');
SELECT * FROM pg_temp.dead_letters('at once');
SELECT ids FROM pg_temp.pop('at once');
-- Either flag switches dead letters on; with both off the exhausted message is dropped, and one
-- that the consumer itself sends there is filed.
SELECT queen.log_configure(pg_temp.tenant(), 'at once', NULL, NULL,
                           '{"deadLetterQueue": false, "retryLimit": 0}', 'merge') -> 'configured';
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{b}', '{failed}');
SELECT base_offset FROM pg_temp.push('at once', 'p', 'c', 'd', 'e');
SELECT queen.log_configure(pg_temp.tenant(), 'at once', NULL, NULL,
                           '{"dlqAfterMaxRetries": false, "retryLimit": 1}', 'merge') -> 'configured';
SELECT ids FROM pg_temp.pop('at once');
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{c}', '{dlq}');
SELECT ids FROM pg_temp.pop('at once');
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{d}', '{failed}');
SELECT ids FROM pg_temp.pop('at once');
SELECT * FROM pg_temp.cursors('at once');
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{d}', '{failed}');
SELECT transaction_id FROM pg_temp.dead_letters('at once');
SELECT * FROM pg_temp.cursors('at once');
-- V-51: dropped, dead and completed ones all count.
SELECT ids FROM pg_temp.pop('at once');
SELECT * FROM pg_temp.ack('at once', 'p', 1, '{e}');
SELECT consumed, committed + 1 AS passed FROM pg_temp.cursors('at once');

-- V-45: the cursor stops at the highest completed below the lowest signal; what was completed
-- above it comes again; one charge for all.
SELECT base_offset FROM pg_temp.push('mixed', 'p', 'a', 'b', 'c', 'd', 'e');
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{e,d,c,a}', '{completed,failed,failed,completed}');
SELECT * FROM pg_temp.cursors('mixed');
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{b,c,d}', '{retry,failed,dlq}');
SELECT * FROM pg_temp.cursors('mixed');
-- On one offset dlq beats failed, and failed beats retry.
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{b,b}', '{retry,failed}');
SELECT retries FROM pg_temp.cursors('mixed');
SELECT ids FROM pg_temp.pop('mixed');
-- Exactly one message is dead-lettered by an ack; only its item says so. Its reason is its own
-- error, else the first one given.
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{d,c,b,b,e}', '{dlq,failed,failed,dlq,completed}', errors => '{of d,of c,"",of b,NULL}');
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{d,c}', '{failed,dlq}', errors => '{of d,NULL}');
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{d}', '{dlq}');
SELECT * FROM pg_temp.dead_letters('mixed');

-- A dead letter at the end of a batch ends it.
SELECT ids FROM pg_temp.pop('mixed');
SELECT * FROM pg_temp.ack('mixed', 'p', 1, '{e}', '{dlq}');
SELECT ids FROM pg_temp.pop('mixed');
SELECT consumed, committed + 1 AS passed FROM pg_temp.cursors('mixed');

-- Without a lease id a negative ack acts on whatever batch there is, also an expired one.
SELECT base_offset FROM pg_temp.push('free', 'p', 'a', 'b');
SELECT ids FROM pg_temp.pop('free');
SELECT pg_temp.expire('free');
SELECT * FROM pg_temp.ack('free', 'p', NULL, '{a}', '{failed}');
SELECT * FROM pg_temp.cursors('free');
SELECT * FROM pg_temp.ack('free', 'p', NULL, '{a,b}', '{failed,retry}');
SELECT * FROM pg_temp.ack('free', 'p', NULL, '{a}', '{dlq}');
SELECT * FROM pg_temp.cursors('free');

-- V-55: what cannot be read is filed all the same and does not block the partition.
SELECT queen.log_configure(pg_temp.tenant(), 'bad', NULL, NULL, '{"retryLimit": 0}', 'merge') -> 'configured';
SELECT base_offset FROM pg_temp.push('bad', 'p', 'a', 'b');
SELECT base_offset FROM pg_temp.push('bad', 'p', 'c');
SELECT base_offset FROM pg_temp.push('bad', 'p', 'd');
SELECT ids FROM pg_temp.pop('bad');
SELECT pg_temp.corrupt('bad', 'p', 0);
SELECT * FROM pg_temp.ack('bad', 'p', 1, '{a,b}', '{completed,failed}', errors => '{NULL,cannot parse}');
SELECT ids FROM pg_temp.pop('bad');
DELETE FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('bad', 'p') AND base_offset = 2;
SELECT * FROM pg_temp.ack('bad', 'p', 1, '{c}', '{failed}');
SELECT * FROM pg_temp.dead_letters('bad');
SELECT ids FROM pg_temp.pop('bad');
-- A payload that jsonb refuses is no obstacle, bytes that are no text neither.
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{odd}', '{p}');
SELECT status FROM queen.log_push(ARRAY[pg_temp.tenant()], '{odd}', '{p}', '{1}', ARRAY[pg_temp.hashes('{nul}')],
    ARRAY[pg_temp.segment(pg_temp.frame('nul', '"\\u0000"', md5('nul')::uuid, producer_sub => '\xff', flags => 4))], true);
SELECT status FROM pg_temp.pop('odd');
SELECT * FROM pg_temp.ack('odd', 'p', 1, '{nul}', '{dlq}');
SELECT transaction_id, payload, flags, producer_sub FROM queen.log_dlq
 WHERE partition_id = pg_temp.partition_id('odd', 'p');
