# The database goes away, is a standby, refuses connections, or cancels calls: clients hear so,
# nothing is promised that is not kept, and all recovers by itself.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('down', init => { allows_streaming => 1 },
    conf => "max_connections = 25\nsuperuser_reserved_connections = 3\n");
my $node = $queen->node;
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);

sub item { my ($id) = @_; return { queue => 'q', partition => 'p', transactionId => $id, payload => {} }; }
sub push_one { my ($id, $to) = @_; return ($to // $web)->post('/api/v1/push', { items => [ item($id) ] }); }

sub is_unavailable
{
    my ($response, $name) = @_;
    is($response->{status}, 503, "$name: 503");
    like($response->{headers}{'retry-after'}, qr/^\d+$/, "$name: Retry-After");
    ok($response->{json}{error}, "$name: the reason in JSON");
    return;
}

sub wait_health
{
    my ($status, $what, $of) = @_;
    wait_until(sub { ($of // $web)->get('/health')->{status} == $status }, "health is $status $what");
    pass("health is $status $what");
    return;
}

# Property V-90: stopped for some seconds under load.
my $load = QueenHistory::start(
    $queen,
    ports => [ $web->port ],
    queue => 'load',
    producers => 16,
    partitions => 4,
    roam => 1,
    batch => 2,
    repeat => 10,
    consumers => 4,
    lease => 3,
    seconds => 120);
wait_until(sub { $queen->sql('SELECT coalesce(sum(last_offset), 0) FROM queen.log_partitions') > 500 }, 'the load runs');
my @parked = map { $web->connect } 1 .. 5;
$_->send('GET', '/api/v1/pop/queue/none?wait=true&timeout=60000') for @parked;
wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} >= @parked }, 'the pops are parked');
$node->stop('fast');
wait_health(503, 'while the database is stopped');
is_unavailable($_->receive, 'a parked pop') for @parked;
is_unavailable(push_one('down'), 'a push');
is_unavailable($web->get('/api/v1/pop/queue/q'), 'a pop');
is_unavailable(
    $web->post('/api/v1/ack', { transactionId => 't', partitionId => '00000000-0000-0000-0000-000000000001' }),
    'an acknowledgement');
is_unavailable($web->post('/api/v1/configure', { queue => 'q' }), 'configure');
is_unavailable($web->get('/api/v1/resources/queues'), 'the list of queues');
is($web->get('/metrics')->{status}, 200, 'metrics are there while the database is stopped');
sleep 3;
$node->start;
wait_health(200, 'when it is back');
my $before = $queen->sql('SELECT sum(last_offset) FROM queen.log_partitions');
wait_until(sub { $queen->sql('SELECT sum(last_offset) FROM queen.log_partitions') > $before + 100 }, 'the load goes on');
$load->stop;
cmp_ok($load->totals->{refused}, '>', 0, 'V-90: requests were refused meanwhile');
$load->drain(ports => [ $web->port ], consumers => 4, pop_timeout => 5000);
$load->check_log('V-90');
$load->check_groups('V-90');
$load->check_drained('V-90', 'workers');
is($queen->sql(q{SELECT count(*) FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'q'}),
    0, 'the push that was refused left nothing');

# A stop in fast mode is not held up by a thousand parked pops.
my $pops = QueenHistory::start($queen, ports => [ $web->port ], queue => 'q', consumers => 1000, pop_timeout => 60000, seconds => 120);
wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1000 }, '1000 pops are parked');
$node->stop('fast');
pass('the server stops under 1000 parked pops');
$node->start;
wait_health(200, 'after that');
wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1000 }, 'the pops are parked again');
is(push_one('after')->{status}, 201, 'and a push goes through');
$pops->kill;

# Calls that the server cancels: each fails alone, and its connection goes on.
sub backends { return $queen->sql(q{SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE usename = 'queen_web'}); }

my $backends = backends();
for my $setting ('statement_timeout', 'lock_timeout')
{
    my $other = $queen->start_frontend(args => [ '--threads', 1, "--$setting" =~ tr/_/-/r, 300 ]);
    is(push_one("$setting before", $other)->{status}, 201, "$setting: a push");
    my $all = backends();
    my $session = $node->background_psql('postgres');
    $session->query_safe(q{BEGIN; SELECT FROM queen.log_partitions WHERE name = 'p' FOR UPDATE});
    is_unavailable(push_one("$setting held", $other), "$setting: a push that meets a lock");
    $session->query_safe('ROLLBACK');
    $session->quit;
    is(push_one("$setting after", $other)->{status}, 201, "$setting: a push after it");
    is(backends(), $all, "$setting: the connections are the same");
    is($other->stop, 0, "$setting: the front end stops");
}
is($queen->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0, 'no advisory lock is left');

# Connection slots run out: front ends that come too late say so, and come up when there is room.
wait_until(sub { backends() eq $backends }, 'the other front ends have disconnected');
my @sessions = map { $node->background_psql('postgres', extra_params => [ '--username', 'queen_web' ]) }
  1 .. 22 - split /,/, $backends;
my $late = $queen->start_frontend(args => [ '--threads', 1 ], may_fail => 1);
wait_until(sub { eval { $late->get('/status') } }, 'the late front end listens');
wait_health(503, 'without connection slots', $late);
is_unavailable(push_one('late', $late), 'a push without connection slots');
is(push_one('early')->{status}, 201, 'the other front end works');
$_->quit for @sessions;
wait_health(200, 'when slots are free', $late);
is(push_one('late', $late)->{status}, 201, 'a push when slots are free');
is($late->stop, 0, 'the late front end stops');

# A front end that finds a standby never writes, and never says that it did.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my $stray = $queen->start_frontend(
    args => [ '--threads', 1 ],
    env => { PGHOST => $standby->host, PGPORT => $standby->port },
    may_fail => 1);
wait_until(sub { eval { $stray->get('/status') } }, 'the stray front end listens');
wait_health(503, 'on a standby', $stray);
is_unavailable(push_one('stray', $stray), 'a push to a standby');
is_unavailable($stray->get('/api/v1/pop/queue/q'), 'a pop from a standby');
is_unavailable($stray->post('/api/v1/configure', { queue => 'q' }), 'configure on a standby');
$standby->promote;
wait_health(200, 'when the standby is promoted', $stray);
is(push_one('stray', $stray)->{status}, 201, 'a push after that');
is($stray->stop, 0, 'the stray front end stops');
$standby->stop;

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
