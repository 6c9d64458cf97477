# Work lists that are too short, and that are gone: after a restart, a crash, a promotion.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use QueenWorkers;
use Test::More;

# A group has room for 16 partitions.
my $queen = QueenWorkers::start('worklist', init => { allows_streaming => 1 }, conf => "queen.worklist_size = 64\nqueen.worklist_check_interval = 1d\n");
my $node = $queen->node;
wait_for_workers($queen);
$queen->sql(<<'SQL');
CREATE FUNCTION test.push_each(queue text, width int, id text) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM generate_series(1, width) AS i, test.push(queue, 'p' || i, id);
$$;
CREATE TABLE test.got (grp text, queue text, partition text, message bigint, PRIMARY KEY (grp, queue, partition, message));
-- Pops one partition after the other, each in its own transaction, until two in a row are empty.
CREATE PROCEDURE test.drain(queue text, grp text, auto boolean) LANGUAGE plpgsql AS $$
DECLARE
    n     int;
    empty int := 0;
    i     int := 0;
BEGIN
    WHILE empty < 2 LOOP
        i := i + 1;
        INSERT INTO test.got
        SELECT drain.grp, drain.queue, p.partition, o
          FROM test.pop(drain.queue, grp => drain.grp, worker => i, lease => 3600, auto => drain.auto) AS p,
               generate_series(p.first, p.last) AS o
         WHERE p.status = 'segment';
        GET DIAGNOSTICS n = ROW_COUNT;
        empty := CASE WHEN n = 0 THEN empty + 1 ELSE 0 END;
        COMMIT;
    END LOOP;
END
$$;
SQL
my $on = $queen;

# How much the group got of the queue; the table's key says that it got nothing twice.
sub drained
{
    my ($queue, $grp, $auto) = @_;
    $on->sql("CALL test.drain('$queue', '$grp', $auto)");
    return $on->sql("SELECT count(*) FROM test.got WHERE queue = '$queue' AND grp = '$grp'");
}

# More than there is room for: by pushes while the group has a list, and before.
is(drained('q', 'late', 'true'), 0, 'no queue, no messages');
$on->sql(q{SELECT test.push_each('q', 1, 'a')});
is(drained('q', $_, 'true'), 1, "$_ gets the first message") for qw(auto leased);
$on->sql(q{SELECT test.push_each('q', 50, 'b')});
is(drained('q', 'auto', 'true'), 51, 'what found no room is found all the same');
is(drained('q', 'late', 'true'), 51, 'also when the list begins later');
is(drained('q', 'leased', 'false'), 51, 'and when more is leased than there is room for');
$on->sql(q{SELECT test.push_each('q', 50, 'c')});
is(drained('q', 'auto', 'true'), 101, 'it goes on');
is(drained('q', 'leased', 'false'), 51, 'all is leased');
$on->sql(<<'SQL');
SELECT count(*) FROM queen.log_consumers AS c,
                     queen.log_release(ARRAY[test.tenant()], ARRAY[c.partition_id], ARRAY[c.consumer_group], ARRAY[c.worker_id])
 WHERE c.worker_id IS NOT NULL;
DELETE FROM test.got WHERE grp = 'leased';
SQL
is(drained('q', 'leased', 'true'), 100, 'what is given back is found, more than there is room for');

# More groups than share the room.
$on->sql(q{SELECT test.push_each('many', 20, 'a')});
is(drained('many', "g$_", 'true'), 20, "group $_ of many") for 1 .. 8;
$on->sql(q{SELECT test.push_each('many', 20, 'b')});
is(drained('many', "g$_", 'true'), 40, "and again $_") for 1 .. 8;

# Nothing is known any more.
for my $end (qw(fast immediate))
{
    my $before = drained('q', 'auto', 'true');
    $on->sql(qq{SELECT test.push_each('q', 10, '$end')});
    $node->stop($end);
    $node->start;
    is(drained('q', 'auto', 'true'), $before + 10, "after a stop that is $end");
    $on->sql(qq{SELECT test.push_each('q', 10, 'after $end')});
    is(drained('q', 'auto', 'true'), $before + 20, 'and what comes then');
}

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('worklist_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my $before = drained('q', 'auto', 'true');
$on->sql(q{SELECT test.push_each('q', 10, 'for the standby')});
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
$on = bless { node => $standby, frontends => [] }, 'QueenTest';
is(drained('q', 'auto', 'true'), $before + 10, 'after a promotion');
$on->sql(q{SELECT test.push_each('q', 10, 'by the promoted')});
is(drained('q', 'auto', 'true'), $before + 20, 'and what comes then');
$on->finish;
