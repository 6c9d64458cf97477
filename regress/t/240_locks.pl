# Another session holds rows for long: only what needs exactly these rows waits for them.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('locks');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);
my $hasty = $queen->start_frontend(args => [ '--threads', 1, '--lock-timeout', 300 ]);

sub item { my ($partition, $id) = @_; return { queue => 'q', partition => "p$partition", transactionId => $id, payload => {} }; }
sub items { return { items => [ map { item(@$_) } @_ ] }; }
sub statuses { my ($response) = @_; return join ',', map { $_->{status} } @{ $response->{json} }; }

# A session that holds rows until release() or the end of the test.
sub hold
{
    my ($query) = @_;
    my $session = $queen->node->background_psql('postgres');
    $session->query_safe("BEGIN; $query");
    return $session;
}

sub release { my ($session) = @_; $session->query_safe('ROLLBACK'); return $session->quit; }

# Everything about one partition that a push may change.
sub state_of
{
    my ($partition) = @_;
    return $queen->sql(<<"SQL");
SELECT p.last_offset, p.last_created_at, p.segments, p.bytes,
       (SELECT count(*) FROM queen.log_segments WHERE partition_id = p.id),
       (SELECT count(*) FROM queen.log_txns WHERE partition_id = p.id)
  FROM queen.log_partitions AS p WHERE p.name = 'p$partition'
SQL
}

sub waiting_backends { return $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND wait_event_type = 'Lock'}); }

# --- a partition row ----------------------------------------------------------------------------

is(statuses($web->post('/api/v1/push', items(map { [ $_, 'first' ] } 0 .. 63))), join(',', ('queued') x 64), '64 partitions');

my $session = hold(q{SELECT FROM queen.log_partitions WHERE name = 'p0' FOR UPDATE});
my $before = state_of(0);
my $response = $hasty->post('/api/v1/push', items([ 0, 'late' ]));
is($response->{status}, 503, 'V-05: a push to a partition that stays locked fails');
is(state_of(0), $before, 'V-05: and changes nothing');
$response = $hasty->post('/api/v1/push', items(map { [ $_, 'second' ] } 0 .. 63));
is(statuses($response), join(',', 'failed', ('queued') x 63), 'a request to 64 partitions fails on the locked one only');
is(state_of(0), $before, 'V-05: that changes nothing either');

# Pushes that wait, while others to all other partitions go on.
my @held = map { $web->connect } 1 .. 5;
for my $i (0 .. $#held)
{
    $held[$i]->send('POST', '/api/v1/push', items([ 0, "held-$i" ]));
    wait_until(sub { $web->get('/metrics')->{json}{queen}{pushRequests} >= 2 + $i }, 'the push has arrived');
}
wait_until(sub { waiting_backends() == 1 }, 'one backend waits for the partition, with all of its pushes behind it');
for my $round (1 .. 3)
{
    is(statuses($web->post('/api/v1/push', items(map { [ $_, "round-$round" ] } 1 .. 63))),
        join(',', ('queued') x 63), 'pushes to the other 63 partitions go on');
}
is(scalar(grep { $_->readable } @held), 0, 'the pushes to the locked one wait');
release($session);
is(statuses($_->receive), 'queued', 'they succeed when it is released') for @held;
is(join(',', map { $_->{transactionId} } $web->pop('q', partition => 'p0', autoAck => 'true')),
    join(',', 'first', map { "held-$_" } 0 .. 4), 'in the order in which they came');

# --- a cursor row -------------------------------------------------------------------------------

my @pinned = map { [ $web->pop('q', partition => "p$_", consumerGroup => 'g', subscriptionMode => 'all', leaseSeconds => 3600) ] } 1 .. 3;
is(scalar(map { @$_ } @pinned), 3 * 5, 'three partitions are leased');
$session = hold(q{SELECT FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
                   WHERE p.name = 'p1' AND c.consumer_group = 'g' FOR UPDATE OF c});

sub acks
{
    my (@messages) = @_;
    return {
        consumerGroup => 'g',
        acknowledgments => [ map { { %$_{qw(transactionId partitionId leaseId)} } } @messages ]
    };
}

sub successes { my ($r) = @_; return join ',', map { $_->{success} ? 1 : 0 } @{ $r->{json} }; }

$response = $hasty->post('/api/v1/ack/batch', acks($pinned[0][-1]));
is($response->{status}, 503, 'an acknowledgement at a locked cursor fails');
my $ack = $web->connect;
$ack->send('POST', '/api/v1/ack/batch', acks($pinned[0][-1]));
wait_until(sub { waiting_backends() == 1 }, 'an acknowledgement waits for the cursor');
is(successes($web->post('/api/v1/ack/batch', acks($pinned[1][-1]))), '1', 'others go on');

# A request of which a part is turned away, and resolved later.
my @part = acks($pinned[0][0], $pinned[2][0], $pinned[0][0], $pinned[2][1])->{acknowledgments}->@*;
delete $_->{leaseId} for @part;
$part[2]{transactionId} = 'unknown';
my $parts = $web->connect;
$parts->send('POST', '/api/v1/ack/batch', { consumerGroup => 'g', acknowledgments => \@part });
wait_until(sub { $queen->sql(q{SELECT c.committed FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
                                WHERE p.name = 'p3' AND c.consumer_group = 'g'}) == 1 }, 'what is not locked is acknowledged');
ok(!$parts->readable, 'the rest of the request waits');

# Property V-22: pops go around the locked row, whatever their kind.
is($web->get('/api/v1/pop/queue/q/partition/p1?consumerGroup=g')->{status}, 204, 'V-22: a pinned pop does not wait for it');
my @rest = $web->pop('q', consumerGroup => 'g', subscriptionMode => 'all', partitions => 0, batch => 10000, leaseSeconds => 3600);
my %partitions = map { $_->{partition} => 1 } @rest;
is(join(',', sort keys %partitions), join(',', sort 'p0', map { "p$_" } 4 .. 63), 'V-22: a pop of any partition takes all others');
is($web->get('/api/v1/pop/queue/q?consumerGroup=g&partitions=0')->{status}, 204, 'V-22: and then is empty');
is(scalar(() = $web->pop('q', consumerGroup => 'other', subscriptionMode => 'all', partition => 'p1')), 5, 'V-22: another group is not concerned');
ok(!$ack->readable, 'the acknowledgement still waits');
release($session);
is(successes($ack->receive), '1', 'it succeeds when the cursor is released');
is(successes($parts->receive), '1,1,0,1', 'each message of the other has the verdict that is its own');
is($web->get('/api/v1/pop/queue/q/partition/p1?consumerGroup=g')->{status}, 204, 'and has completed the batch');

# A first contact meets a partition row that is held.
$session = hold(q{SELECT FROM queen.log_partitions WHERE name = 'p5' FOR UPDATE});
@rest = $web->pop('q', consumerGroup => 'newcomer', subscriptionMode => 'all', partitions => 0, batch => 10000);
%partitions = map { $_->{partition} => 1 } @rest;
ok(!$partitions{p5}, 'V-22: a first contact passes a locked partition over');
is(scalar(keys %partitions), 63, 'V-22: and takes all others');
my $parked = $web->connect;
$parked->send('GET', '/api/v1/pop/queue/q?consumerGroup=newcomer&wait=true&timeout=60000');
wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1 }, 'a pop waits for more');
release($session);
is($parked->receive->{json}{messages}[0]{partition}, 'p5', 'it gets the partition when that is released');

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
