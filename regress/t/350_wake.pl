# Wake-ups: one notification for the queues that have something new, after the commit.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('wake', conf => "queen.lease_sweep_interval = 1s\n");
my $node = $queen->node;
wait_for_workers($queen);
my $listener = $node->background_psql('postgres');
$listener->set_query_timer_restart;
$listener->query_safe('LISTEN queen_wake');
my $heard = '';

# Whether one of the payloads since the last call was this one, or named this queue.
sub heard
{
    my ($wanted) = @_;
    $heard .= $listener->query('SELECT 1');
    my @payloads = $heard =~ /notification "queen_wake" with payload "([^"]*)"/g;
    return scalar grep { $_ eq $wanted } map { split /,/ } @payloads;
}

sub heard_nothing_of
{
    my ($queue) = @_;
    my $mark = $queen->sql(q{SELECT test.push('mark', 'p', gen_random_uuid()::text); SELECT id FROM queen.queues WHERE name = 'mark'});
    my $id = (split /\n/, $mark)[-1];
    wait_until(sub { heard($id) }, 'a later push is announced');
    return !heard($queue);
}

sub queue_id { return $queen->sql("SELECT id FROM queen.queues WHERE name = '$_[0]'"); }

# Starting, the worker does not know what it has missed.
replace_worker($queen, 'wake');
wait_until(sub { heard('*') }, 'a new worker wakes all');
$heard = '';

$queen->sql(q{SELECT test.push('a', 'p', '1')});
wait_until(sub { heard(queue_id('a')) }, 'a push is announced');
pass('a push is announced');
$heard = '';

# Only what commits.
$queen->sql(q{BEGIN; SELECT test.push('a', 'p', '2'); ROLLBACK});
ok(heard_nothing_of(queue_id('a')), 'a push that is rolled back is not');
$heard = '';
$queen->sql(q{BEGIN; SAVEPOINT s; SELECT test.push('a', 'p', '3'); ROLLBACK TO s; COMMIT});
ok(heard_nothing_of(queue_id('a')), 'nor one before a savepoint that is rolled back to');
$heard = '';
$queen->sql(q{BEGIN; SAVEPOINT s; SELECT test.push('a', 'p', '4'); RELEASE s; COMMIT});
wait_until(sub { heard(queue_id('a')) }, 'one before a savepoint that is released is');
$heard = '';
$queen->sql(q{SELECT test.push('a', 'p', '4')});
ok(heard_nothing_of(queue_id('a')), 'a duplicate is not announced');
$heard = '';
my $pusher = $node->background_psql('postgres');
$pusher->set_query_timer_restart;
$pusher->query_safe(q{BEGIN; SELECT test.push('b', 'p', '1')});
ok(heard_nothing_of(queue_id('b') || 'none'), 'nothing is announced before the commit');
$pusher->query_safe('COMMIT');
wait_until(sub { heard(queue_id('b')) }, 'but after it');
$heard = '';

# Leases that end with messages behind them.
my $pop = q{SELECT count(*) FROM test.pop('a', worker => 5, batch => 2, lease => 30)};
$queen->sql("$pop; SELECT * FROM test.ack('a', 'p', 5, '{4}')");
ok(heard_nothing_of(queue_id('a')), 'an ack that leaves nothing is not announced');
$queen->sql(q{SELECT test.push('a', 'p', '5', '6', '7')});
wait_until(sub { heard(queue_id('a')) }, 'a push');
$heard = '';
$queen->sql("$pop; SELECT * FROM test.ack('a', 'p', 5, '{6}')");
wait_until(sub { heard(queue_id('a')) }, 'an ack with messages behind the batch is');
$heard = '';
$queen->sql("$pop; SELECT * FROM test.ack('a', 'p', 5, '{7}', '{retry}')");
wait_until(sub { heard(queue_id('a')) }, 'a batch that is given back is');
$heard = '';
$queen->sql("$pop; SELECT * FROM queen.log_release(ARRAY[test.tenant()], ARRAY[test.partition_id('a', 'p')], '{__QUEUE_MODE__}', ARRAY[test.worker(5)])");
wait_until(sub { heard(queue_id('a')) }, 'a lease that is released is');
$heard = '';
$queen->sql(q{SELECT * FROM test.pop('a', worker => 5, batch => 2, lease => 1)});
wait_until(sub { heard(queue_id('a')) }, 'a lease that runs out is');
pass('leases that end are announced');
$heard = '';

# A push between an ack's look at what is behind the batch and its commit: whoever comes for it meets the lease.
for my $met (0, 1)
{
    my $name = "met$met";
    my $taken = "count(*) FROM test.pop('$name', worker => 6) WHERE status = 'segment'";
    $queen->sql("SELECT test.push('$name', 'p', '1'); SELECT count(*) FROM test.pop('$name', worker => 5, batch => 1, lease => 600)");
    my $acknowledging = $node->background_psql('postgres');
    $acknowledging->query_safe("BEGIN; SELECT * FROM test.ack('$name', 'p', 5, '{1}')");
    $queen->sql("SELECT test.push('$name', 'p', '2')");
    wait_until(sub { heard(queue_id($name)) }, 'the push is announced');
    is($queen->sql("SELECT $taken"), 0, 'the batch is leased still') if $met;
    $heard = '';
    $acknowledging->query_safe('COMMIT');
    wait_until(sub { heard(queue_id($name)) }, 'so is the end of the lease');
    is($queen->sql("SELECT $taken"), 1, 'an ack that a push has passed is announced');
    $acknowledging->quit;
    $heard = '';
}

# More queues than fit into one notification.
my $many = q{SELECT count(*) FROM generate_series(1, 300) AS i, LATERAL test.push('many' || i, 'p', 'x' || random()) AS v};
my $worker = $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queen wake'});
kill 'STOP', $worker;    # or it takes some of them before the rest is noted
$queen->sql($many);
kill 'CONT', $worker;
wait_until(sub { heard('*') }, 'many queues are all queues');
$heard = '';
kill 'STOP', $worker;
$queen->sql(q{SELECT count(*) FROM generate_series(1, 150) AS i, LATERAL test.push('many' || i, 'p', 'y' || random()) AS v});
kill 'CONT', $worker;
wait_until(sub { heard(queue_id('many150')) }, '150 queues fit');
ok(!heard('*'), '150 queues fit into one notification');
unlike($heard, qr/payload "[^"]{8000}/, 'which is short enough');

# A worker that was away: nothing is lost.
$heard = '';
$node->append_conf('postgresql.conf', "queen.workers = off\n");
$node->reload;
wait_until(sub { !%{ workers($queen) } }, 'no worker runs');
$queen->sql(q{SELECT test.push('a', 'p', 'away')});
$node->append_conf('postgresql.conf', "queen.workers = on\n");
$node->reload;
wait_until(sub { heard('*') }, 'what was pushed without a worker is announced when it is back');

# What keeps notifications from being sent is tried again.
is(statistics($queen, 'wake', 'errors'), 0, 'all of that without an error');

# Nothing is announced that no listener wants to hear: what its own origin did, or anything at all.
sub push_as
{
    my ($origin, $queue) = @_;
    $queen->sql("SET queen.wake_origin = $origin; SELECT test.push('$queue', 'p', gen_random_uuid()::text)");
    return queue_id($queue);
}

my $pid = $listener->query_safe('SELECT pg_backend_pid()') =~ s/\D.*//sr;
$_->quit for $listener, $pusher;
wait_until(sub { $queen->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }, 'the listener is gone');
my $sent = statistics($queen, 'wake', 'rows');
push_as(0, 'unheard');
$listener = $node->background_psql('postgres');
$listener->set_query_timer_restart;
$listener->query_safe('SET queen.wake_origin = 7; BEGIN; LISTEN queen_wake; COMMIT');
my $own = push_as(7, 'own');
my $foreign = push_as(8, 'foreign');
$heard = '';
wait_until(sub { heard("$foreign:8") }, 'news of another origin is announced');
unlike($heard, qr/$own/, 'news of the only listener is not');
unlike($heard, qr/${\queue_id('unheard')}/, 'nor was what happened while nobody listened');
wait_until(sub { statistics($queen, 'wake', 'rows') == $sent + 1 }, 'one notification was sent');
$heard = '';
my $both = push_as(0, 'own');
wait_until(sub { heard($both) }, 'news of no origin is announced');

# A second listener of another origin wants to hear of the first one's news.
my $second = $node->background_psql('postgres');
$second->set_query_timer_restart;
$second->query_safe('SET queen.wake_origin = 9; LISTEN queen_wake');
$heard = '';
push_as(7, 'own');
wait_until(sub { heard("$own:7") }, 'news of the first is announced for the second');
$_->quit for $listener, $second;
$queen->finish;
