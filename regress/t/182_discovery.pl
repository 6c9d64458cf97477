# Pops by namespace and task over HTTP: what they find, what their answer looks like, how they wait.
use strict;
use warnings;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('discovery', conf => "synchronous_commit = off\nqueen.workers = off\n");
my @no_fallback = qw(--poll-initial 60000 --poll-max 60000);
my $web = $queen->start_frontend(args => [ @no_fallback, qw(--threads 2) ]);
my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $uuid = qr/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

sub discover { my ($query) = @_; return $web->get("/api/v1/pop?$query"); }
sub data { my ($response) = @_;
    return $response->{status} == 200 ? join(' ', sort map { $_->{data} } @{ $response->{json}{messages} }) : $response->{status}; }
sub push_to { my ($queue, @payloads) = @_; $web->push(map { { queue => $queue, payload => $_ } } @payloads); return; }
sub parked { return $web->get('/metrics')->{json}{queen}{parkedPops}; }
sub park
{
    my ($query, $timeout) = @_;
    my ($connection, $before) = ($web->connect, parked());
    $connection->send('GET', "/api/v1/pop?wait=true&timeout=" . ($timeout // 50000) . "&$query");
    wait_until(sub { parked() == $before + 1 }, "the poll of $query is parked");
    return $connection;
}

# V-30: what was only ever pushed to is found.
push_to('shop.orders', 1, 2);
push_to('shop.mails', 3);
push_to('blog.mails', 4);
{
    my $response = discover('namespace=shop&partitions=0&consumerGroup=g&subscriptionMode=all');
    is(data($response), '1 2 3', 'V-30: by namespace');
    my %envelope = %{ $response->{json} };
    my $messages = delete $envelope{messages};
    my ($first) = @$messages;
    is_deeply(\%envelope,
        { success => $true, queue => '', partition => 'Default', partitionId => $first->{partitionId}, leaseId => $first->{leaseId},
            consumerGroup => 'g', partitionsClaimed => 2 }, 'the answer names no queue');
    is_deeply([ sort keys %$first ],
        [ sort qw(id transactionId traceId data producerSub createdAt partitionId partition leaseId consumerGroup deliveryAttempt) ], 'a message is as others');
    like($first->{leaseId}, $uuid, 'with one lease');
    is(scalar(keys %{ { map { $_->{leaseId} => 1 } @$messages } }), 1, 'for all queues');
    is(scalar(keys %{ { map { $_->{partitionId} => 1 } @$messages } }), 2, 'and several partitions');
    my $renewed = $web->post("/api/v1/lease/$first->{leaseId}/extend", { seconds => 600 })->{json}{renewed};
    is($renewed, 2, 'which is extended everywhere');
    is(discover('namespace=shop&consumerGroup=g')->{status}, 204, 'leased');
    is_deeply([ map { $_->{success} } @{ $web->ack('completed', @$messages) } ], [ ($true) x 3 ], 'acknowledged');
    is(discover('namespace=shop&consumerGroup=g')->{status}, 204, 'nothing is left');
}
is(data(discover('task=mails&partitions=0&autoAck=true')), '3 4', 'V-30: by task, queue mode');
is(data(discover('namespace=blog&task=mails&autoAck=true&consumerGroup=both&subscriptionMode=all')), '4', 'V-30: by both');
is(discover('namespace=blog&task=orders&consumerGroup=none&subscriptionMode=all')->{status}, 204, 'by both, of which one does not match');
is(discover('namespace=nowhere')->{status}, 204, 'nothing matches');
is($queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = ''}), 0, 'no queue was created');
is(scalar @{ discover('namespace=shop&partitions=0&batch=2&autoAck=true&consumerGroup=batch&subscriptionMode=all')->{json}{messages} }, 2,
    'the batch counts over all queues');

# V-33: new is what comes after the first look, also in a queue made later; a time is a time.
is(discover('namespace=shop&consumerGroup=late&subscriptionMode=new')->{status}, 204, 'V-33: nothing of what was there');
push_to('shop.later', 5);
push_to('shop.orders', 6);
is(data(discover('namespace=shop&partitions=0&consumerGroup=late')), '5 6', 'V-33: what came since');
is(data(discover('namespace=shop&partitions=0&consumerGroup=time&subscriptionFrom=2000-01-01')), '1 2 3 5 6', 'V-33: from a time');

# L-17: the lease of each queue, or that of the request.
{
    $web->post('/api/v1/configure', { queue => "lease.$_", namespace => 'lease', task => '', leaseTime => 1000 * $_ }) for 1, 2;
    push_to("lease.$_", $_) for 1, 2;
    my $leases = sub { return $queen->sql(qq{SELECT string_agg(round(extract(epoch FROM lease_expires_at - lease_acquired_at))::text, ' ' ORDER BY lease_expires_at)
        FROM queen.log_consumers WHERE consumer_group = '$_[0]'}); };
    discover('namespace=lease&partitions=0&consumerGroup=own&subscriptionMode=all');
    is($leases->('own'), '1000 2000', 'L-17: each queue its own lease');
    discover('namespace=lease&partitions=0&consumerGroup=given&subscriptionMode=all&leaseSeconds=77');
    is($leases->('given'), '77 77', 'L-17: or that of the request');
}

# A waiting poll is woken by a push to a queue that matches, also one that did not exist; by a
# released lease; and it holds nothing.
{
    my $poll = park('namespace=wait&consumerGroup=g');
    push_to('other.queue', 0);
    push_to('wait.new', 1);
    my $response = $poll->receive;
    is(data($response), '1', 'V-35: a queue that is made while it waits');
    my $other = park('task=new&consumerGroup=g');
    push_to('wait.new', 2);
    wait_until(sub { parked() == 1 }, 'it is parked again: that partition is leased');
    $web->ack('completed', @{ $response->{json}{messages} });
    is(data($other->receive), '2', 'V-35: until that is acknowledged');

    my @polls = map { park('namespace=one&autoAck=true') } 1 .. 3;
    push_to("one.$_", $_) for 1 .. 3;
    is(join(' ', sort map { data($_->receive) } @polls), '1 2 3', 'V-35: each of several gets its own');

    my @many = map { park("namespace=busy&autoAck=true&consumerGroup=$_&subscriptionMode=all") } 'a', 'b';
    push_to("noise.$_", $_) for 1 .. 30;
    push_to('busy.q', 'x');
    is(data($_->receive), 'x', 'V-35: among pushes to others') for @many;
    my $mine = $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND state <> 'idle' AND state IS NOT NULL});
    is($mine, 0, 'V-35: it holds no connection');
}
is(park('namespace=silent', 300)->receive->{status}, 204, 'the time is over');
{
    my $poll = park('namespace=gone&consumerGroup=g');
    $poll->close;
    wait_until(sub { parked() == 0 }, 'a client that hung up is dropped');
    push_to('gone.q', 1);
    is($queen->sql(q{SELECT count(*) FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
                       JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'gone.q'}), 0, 'and nothing is leased for it');
}

# What is refused.
{
    for my $query ('', 'x=1', 'namespace=&task=', 'consumerGroup=g')
    {
        my $response = discover($query);
        is($response->{status}, 400, "neither namespace nor task: '$query'");
        is_deeply($response->{json}, { success => $false, error => 'namespace or task is required', messages => [] }, 'and why');
    }
    is_error(discover("namespace=a&$_->[0]"), 400, $_->[1], $_->[0])
      for [ 'batch=x', 'batch must be an integer' ], [ 'batch=10001', 'batch must be at most 10000' ], [ 'partitions=1.5', 'partitions must be an integer' ],
      [ 'wait=maybe', 'wait must be true or false' ], [ 'leaseSeconds=86401', 'leaseSeconds must be at most 86400' ],
      [ 'consumerGroup=%01', 'consumerGroup holds a control character' ], [ 'task=%ff', 'task is not valid UTF-8' ],
      [ 'task=' . 'x' x 256, 'task is longer than 255 characters' ];
    is_error(discover('namespace=%0a'), 400, 'namespace holds a control character', 'a bad namespace');
    is($web->request($_, '/api/v1/pop?namespace=a')->{status}, 405, "$_ is no pop") for qw(POST DELETE);
    my $head = $web->connect;
    $head->send('HEAD', '/api/v1/pop?namespace=a');
    is($head->receive(1)->{status}, 405, 'nor is HEAD, whose messages nobody would read');
    is(discover('namespace=' . '%F0%9F%90%A2' x 255)->{status}, 204, 'the longest namespace');
}

$queen->finish;
