# A step that fails: counted, logged once, backed off; the others go on, and it recovers by itself.
# What other sessions hold does not stop a worker.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('worker_errors', conf => <<'CONF');
queen.retention_interval = 100ms
queen.sidecar_purge_interval = 100ms
queen.lease_sweep_interval = 1s
CONF
my $node = $queen->node;
wait_for_workers($queen);

sub segments
{
    my ($partition) = @_;
    return $queen->sql("SELECT count(*) FROM queen.log_segments WHERE partition_id = test.partition_id('q', '$partition')");
}

# Fills a partition with old messages; what is not due yet is made due.
sub make_due
{
    my ($partition, $messages) = @_;
    $queen->sql(<<SQL);
SET client_min_messages = warning;
SET statement_timeout = 0;
SELECT count(*) FROM generate_series(1, $messages) AS i, LATERAL test.push('q', '$partition', '$partition' || i || random()) AS v;
SELECT test.age('q', '$partition', interval '1 hour');
SQL
    return;
}

$queen->sql(q{SELECT queen.log_configure(test.tenant(), 'q', NULL, NULL,
              '{"retentionEnabled": true, "retentionSeconds": 600, "leaseTime": 1}', 'merge')});
make_due('warm', 3);
wait_until(sub { segments('warm') == 0 }, 'retention works');

# A table that is not there.
my %errors = map { $_ => statistics($queen, $_, 'errors') } 'lease expiry', 'wake';
$queen->sql('ALTER TABLE queen.log_due RENAME TO hidden');
wait_until(sub { statistics($queen, 'retention', 'errors') >= 4 }, 'retention fails again and again');
is(count_in_log($queen, qr/WARNING:  queen\.retention_step failed in database "postgres": 42P01/), 1, 'one cause, one line in the log');
is(statistics($queen, 'retention', 'state'), 'backing off', 'it backs off');
like(statistics($queen, 'retention', 'last_error'), qr/^42P01: relation "queen.log_due" does not exist/, 'the view shows the error');
is(statistics($queen, $_, 'errors'), $errors{$_}, "$_ is unaffected") for sort keys %errors;
$queen->sql('ALTER TABLE queen.hidden RENAME TO log_due');
make_due('after', 3);
wait_until(sub { segments('after') == 0 }, 'retention recovers by itself');
wait_until(sub { statistics($queen, 'retention', 'state') eq 'sleeping' }, 'and sleeps again');

# The same cause once more is news again.
$queen->sql('ALTER TABLE queen.log_due RENAME TO hidden');
wait_until(sub { count_in_log($queen, qr/WARNING:  queen\.retention_step failed in database "postgres": 42P01/) == 2 }, 'a new failure is logged');
$queen->sql('ALTER TABLE queen.hidden RENAME TO log_due');

# DDL: the worker does not wait in front of others.
my $ddl = $node->background_psql('postgres');
$ddl->set_query_timer_restart;
$ddl->query_safe('BEGIN');
$ddl->query_safe('LOCK TABLE queen.log_due IN ACCESS EXCLUSIVE MODE');
wait_until(sub { statistics($queen, 'retention', 'last_error') =~ /^55P03/ }, 'a locked table is given up on');
$ddl->query_safe('ROLLBACK');
wait_until(sub { statistics($queen, 'retention', 'state') eq 'sleeping' }, 'and tried again');

# A transaction that holds a partition, or a cursor.
my $holder = $node->background_psql('postgres');
$holder->set_query_timer_restart;
make_due($_, 2) for qw(held free);
$queen->sql(q{SELECT test.push('leased', p, 'm') FROM (VALUES ('held'), ('free')) AS v (p)});
$holder->query_safe('BEGIN');
$queen->sql(q{SELECT * FROM test.pop('leased', partitions => 2, lease => 1)});
$holder->query_safe(q{SELECT FROM queen.log_consumers WHERE partition_id = test.partition_id('leased', 'held') FOR UPDATE});
wait_until(
    sub { $queen->sql(q{SELECT worker_id IS NULL FROM queen.log_consumers WHERE partition_id = test.partition_id('leased', 'free')}) eq 't' },
    'a lease beside a held cursor is released');
is($queen->sql(q{SELECT worker_id IS NULL FROM queen.log_consumers WHERE partition_id = test.partition_id('leased', 'held')}), 'f', 'the held one waits');
$holder->query_safe('ROLLBACK');
wait_until(
    sub { $queen->sql(q{SELECT worker_id IS NULL FROM queen.log_consumers WHERE partition_id = test.partition_id('leased', 'held')}) eq 't' },
    'the held cursor follows');
$holder->query_safe('BEGIN');
$holder->query_safe(q{SELECT FROM queen.log_partitions WHERE id = test.partition_id('q', 'held') FOR UPDATE});
$queen->sql(q{SELECT test.push('q', 'free', 'again'); SELECT test.age('q', 'free', interval '1 hour')});
wait_until(sub { segments('free') == 0 }, 'a partition beside a held one is cleaned');
$holder->query_safe('ROLLBACK');
wait_until(sub { segments('held') == 0 }, 'the held one follows');

# A step that takes too long is tried with less.
$queen->sql(<<'SQL');
CREATE FUNCTION test.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN OLD; END $$;
CREATE TRIGGER slow BEFORE DELETE ON queen.log_segments FOR EACH ROW EXECUTE FUNCTION test.slow();
ALTER DATABASE postgres SET statement_timeout = '500ms';
SQL
replace_worker($queen, 'retention');
make_due('slow', 150);
wait_until(sub { segments('slow') == 0 }, 'a slow step is done in smaller ones');
cmp_ok(count_in_log($queen, qr/queen\.retention_step failed in database "postgres": 57014/), '>=', 1, 'after it was cancelled');

# A worker in the middle of a step ends at once; the step is rolled back and done again.
$queen->sql(<<'SQL');
ALTER DATABASE postgres RESET statement_timeout;
CREATE OR REPLACE FUNCTION test.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(86400); RETURN OLD; END $$;
SQL
my $retention = replace_worker($queen, 'retention')->{retention};
make_due('stuck', 3);
wait_until(
    sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queen retention' AND wait_event = 'PgSleep' AND query = 'queen.retention_step'}) },
    'a step takes for ever');
$queen->sql("SELECT pg_terminate_backend($retention)");
wait_until(sub { (workers($queen)->{retention} // 0) != $retention }, 'it ends in the middle');
is(segments('stuck'), 3, 'an interrupted step leaves nothing half done');
my $dropper = $node->background_psql('postgres');
$dropper->query_until(qr/begun/, "\\echo begun\nDROP TRIGGER slow ON queen.log_segments;\n");
wait_until(
    sub {
        my $pid = workers($queen)->{retention} // 0;
        $queen->sql("SELECT pg_terminate_backend($pid)") if $pid;
        return $queen->sql(q{SELECT count(*) FROM pg_trigger WHERE tgname = 'slow'}) == 0;
    },
    'the table can be changed');
wait_until(sub { segments('stuck') == 0 }, 'and is done again');

$_->quit for $ddl, $holder, $dropper;
$queen->finish;
