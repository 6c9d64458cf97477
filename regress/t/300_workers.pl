# The launcher and its workers: started, replaced, reconfigured, sent away.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('workers', conf => "max_worker_processes = 32\n");
my $node = $queen->node;

# One set, with names.
my $workers = wait_for_workers($queen);
is_deeply([ sort keys %$workers ], \@QueenWorkers::WORKERS, 'one process per duty');
is($queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queen launcher'}), 1, 'one launcher');
is( $queen->sql(q{SELECT string_agg(worker, ', ' ORDER BY worker) FROM queen.pg_stat_queen_workers
                   WHERE datname = 'postgres' AND pid IS NOT NULL}),
    join(', ', @QueenWorkers::WORKERS),
    'the view shows them');
wait_until(
    sub { $queen->sql(q{SELECT query FROM pg_stat_activity WHERE backend_type = 'queen sidecar purge'}) ne '' },
    'a worker has run a step');
like($queen->sql(q{SELECT query FROM pg_stat_activity WHERE backend_type = 'queen history'}),
    qr/history_step|forget deleted queues/, 'the activity names the step');
is($queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queen %' AND state = 'idle'
                   AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)}), 0, 'who sleeps holds no snapshot');

# Who may look.
$queen->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
for my $view (qw(workers queues consumers progress_retention))
{
    my ($status) = $node->psql('postgres', "SELECT count(*) FROM queen.pg_stat_queen_$view", extra_params => [ '-U', 'watcher' ]);
    is($status, 0, "pg_monitor reads pg_stat_queen_$view");
}
my ($status, $output, $error) = $node->psql('postgres', 'SELECT queen.pg_stat_queen_reset()', extra_params => [ '-U', 'watcher' ]);
like($error, qr/permission denied/, 'but resets nothing');

# A terminated worker comes back, the others stay.
for my $worker (@QueenWorkers::WORKERS)
{
    my $old = wait_for_workers($queen);
    my $new = replace_worker($queen, $worker);
    is_deeply([ map { $new->{$_} } grep { $_ ne $worker } sort keys %$new ],
        [ map { $old->{$_} } grep { $_ ne $worker } sort keys %$old ], "terminating $worker leaves the others alone");
}

# The launcher comes back and adopts what runs.
$workers = wait_for_workers($queen);
my $launcher = $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queen launcher'});
$queen->sql("SELECT pg_terminate_backend($launcher)");
wait_until(sub { ($queen->sql(q{SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'queen launcher'}) || $launcher) != $launcher },
    'the launcher is back');
my $adopted = replace_worker($queen, 'wake');
delete $_->{wake} for $workers, $adopted;
is_deeply($adopted, $workers, 'and has adopted the others');

# A reload changes an interval, without a restart of anything.
my $cycles = statistics($queen, 'history', 'cycles');
is(statistics($queen, 'history', 'state'), 'sleeping', 'history sleeps for a minute');
$node->append_conf('postgresql.conf', "queen.history_interval = 1\n");
$node->reload;
wait_until(sub { statistics($queen, 'history', 'cycles') >= $cycles + 3 }, 'history runs every second');
is(workers($queen)->{history}, $workers->{history}, 'a reload changes the interval of a running worker');

# Deleted queues are counted together, from then on.
$queen->sql(q{SELECT queen.push('gone', '{}')});
$queen->sql(q{SELECT queen.delete_queue('gone')});
my $gone = sub {
    return $queen->sql(q{SELECT pushes, stats_reset FROM queen.stat_queues()
                          WHERE queue_id = '00000000-0000-0000-0000-000000000000'});
};
wait_until(sub { $gone->() ne '' }, 'the counters of a deleted queue are kept');
my $kept = $gone->();
$cycles = statistics($queen, 'history', 'cycles');
wait_until(sub { statistics($queen, 'history', 'cycles') >= $cycles + 2 }, 'history runs on');
is($gone->(), $kept, 'and do not begin anew');

# What looks for overdue partitions does not read those that are due later.
$queen->sql(q{INSERT INTO queen.queues (tenant_id, name) VALUES (queen.api_tenant(), 'later');
              INSERT INTO queen.log_partitions (queue_id, name) SELECT id, i FROM queen.queues, generate_series(1, 5000) AS i WHERE queues.name = 'later';
              INSERT INTO queen.log_due (partition_id, retention_at, purge_at)
              SELECT p.id, now() + interval '1 day', now() + interval '1 day' FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'later'});
$node->append_conf('postgresql.conf', "queen.retention_interval = 100\nqueen.sidecar_purge_interval = 100\n");
$node->reload;
for my $worker ('retention', 'sidecar purge')
{
    my $read = sub { $queen->sql(q{SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'log_due'}) };
    my ($before, $cycle) = ($read->(), statistics($queen, $worker, 'cycles'));
    wait_until(sub { statistics($queen, $worker, 'cycles') >= $cycle + 15 }, "$worker looks");
    cmp_ok($read->() - $before, '<', 5000, "$worker reads what is due");
}

# Off and on.
$node->append_conf('postgresql.conf', "queen.workers = off\n");
$node->reload;
wait_until(sub { !%{ workers($queen) } }, 'no worker runs');
is($queen->sql(q{CALL queen.maintain(); SELECT 'done'}), 'done', 'maintenance by hand works without workers');
$node->append_conf('postgresql.conf', "queen.workers = on\n");
$node->reload;
wait_for_workers($queen);

# DROP EXTENSION is not held up; the workers leave, and come back with the extension.
$queen->sql('DROP EXTENSION queen CASCADE; DROP SCHEMA test CASCADE');
wait_until(sub { !%{ workers($queen) } }, 'the workers have left');
$queen->sql('CREATE EXTENSION queen');
wait_for_workers($queen);
pass('the workers follow the extension');

# More databases: one that exists, one that does not yet, one without the extension.
$queen->sql('CREATE DATABASE other');
$node->append_conf('postgresql.conf', "queen.databases = 'postgres, other, later, template1'\n");
$node->reload;
$node->safe_psql('other', 'CREATE EXTENSION queen');
my $other = wait_for_workers($queen, 'other');
$queen->sql('CREATE DATABASE later');
$node->safe_psql('later', 'CREATE EXTENSION queen');
pass('a database and an extension that come later are found') if wait_for_workers($queen, 'later');
is($queen->sql(q{SELECT string_agg(datname, ' ' ORDER BY datname) FROM (SELECT DISTINCT datname FROM queen.pg_stat_queen_workers) AS d}),
    'later other postgres template1', 'the view shows the workers of every database');
$node->append_conf('postgresql.conf', "queen.databases = 'postgres'\n");
$node->reload;
wait_until(sub { !%{ workers($queen, 'other') } && !%{ workers($queen, 'later') } }, 'databases that are not listed have no workers');
wait_for_workers($queen);

# A list that cannot be read changes nothing.
$node->append_conf('postgresql.conf', "queen.databases = 'postgres,,'\n");
$node->reload;
wait_for_log($queen, qr/invalid value for parameter "queen\.databases"/);
is($queen->sql('SHOW queen.databases'), 'postgres', 'a bad list is refused');

is(count_in_log($queen, qr/ERROR:|WARNING:.*failed in database/), count_in_log($queen, qr/ERROR:  permission denied for function pg_stat_queen_reset/),
    'all of that without an error');
$queen->finish;
