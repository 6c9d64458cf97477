# Waiting pops: what wakes them, what they cost, and what happens to those whose client is gone.
#
# The fallback poll of these front ends comes after a minute and the polls give up before that, and
# there is no wake worker: a poll that is answered with messages was woken by its own front end.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use QueenTest 'wait_until';
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

my @no_fallback = qw(--poll-initial 60000 --poll-max 60000);
my $queen = QueenTest->new('poll', conf => "synchronous_commit = off\nqueen.workers = off\n");
my $web = $queen->start_frontend(args => [ @no_fallback, qw(--threads 1) ]);

sub parked { return $_[0]->get('/metrics')->{json}{queen}{parkedPops}; }
sub configure { my ($queue, %options) = @_; $web->post('/api/v1/configure', { queue => $queue, options => \%options }); return; }

# Starts a waiting pop and returns its connection once it is parked.
sub park
{
    my ($frontend, $path, %options) = @_;
    my $before = parked($frontend);
    my $connection = $frontend->connect;
    my $timeout = $options{timeout} // 40000;
    $connection->send('GET', "/api/v1/pop/queue/$path" . ($path =~ /\?/ ? '&' : '?') . "wait=true&timeout=$timeout");
    wait_until(sub { parked($frontend) == $before + 1 }, "the poll of $path is parked");
    return $connection;
}
sub payloads
{
    my ($connection) = @_;
    my $response = $connection->receive;
    return $response->{status} unless $response->{status} == 200;
    return join ' ', map { $_->{data} } @{ $response->{json}{messages} };
}
sub push_to { my ($queue, @payloads) = @_; $web->push(map { { queue => $queue, payload => $_ } } @payloads); return; }
sub transact_to { my ($frontend, $queue, $payload) = @_; $frontend->post('/api/v1/transaction', { operations => [ { type => 'push', queue => $queue, payload => $payload } ] }); return; }
sub leases { return $queen->sql('SELECT count(*) FROM queen.log_consumers WHERE worker_id IS NOT NULL'); }
sub connections { return $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web'}); }
sub reset_connection
{
    my ($connection) = @_;
    setsockopt $connection->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
    $connection->close;
    return;
}

# A push wakes, one poll of each group, whatever way it asked.
{
    my @polls = map { park($web, $_) } 'wake', 'wake?consumerGroup=g', 'wake/partition/Default?consumerGroup=h',
      'wake/partition/other?consumerGroup=i';
    is(leases(), 0, 'V-35: nothing is leased for a parked poll');
    push_to('wake', 1);
    is(payloads($polls[$_]), '1', "V-35: a push answers poll $_") for 0 .. 2;
    is(parked($web), 1, 'V-35: but not one of another partition');
    $web->push({ queue => 'wake', partition => 'other', payload => 2 });
    is(payloads($polls[3]), '2', 'V-35: until that has something');

    @polls = map { park($web, 'fifo?autoAck=true') } 1 .. 3;
    for my $i (0 .. 2)
    {
        push_to('fifo', $i);
        is(payloads($polls[$i]), $i, 'V-35: one push answers one poll of a group, the first');
        is(parked($web), 2 - $i, 'V-35: the others stay');
    }
}

# Parked polls hold no database connection, and no lease.
{
    my $before = connections();
    my @polls = map { $web->connect } 1 .. 200;
    $_->send('GET', '/api/v1/pop/queue/many?wait=true&timeout=300000') for @polls;
    wait_until(sub { parked($web) == 200 }, 'all polls are parked');
    is(connections(), $before, 'V-35: 200 parked polls hold no database connection');
    is($queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND state <> 'idle'}), 0,
        'V-35: nor do they keep one busy');
    # Half of the clients close, half reset their connection.
    while (my ($first, $second) = splice @polls, 0, 2) { $first->close; reset_connection($second) }
    wait_until(sub { parked($web) == 0 }, 'polls without a client are dropped');
    push_to('many', 1);
    is($queen->sql(q{SELECT count(*) FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
                     JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'many'}), 0,
        'V-35: nothing is leased for a client that hung up');
    is(join(' ', map { $_->{data} } $web->pop('many')), '1', 'V-35: the next consumer gets the message');
}

# A client that says it will send nothing more is gone, too: nobody could tell it from one that left.
{
    my $connection = park($web, 'half', timeout => 300000);
    $connection->shutdown_write;
    wait_until(sub { parked($web) == 0 }, 'the poll is dropped');
    pass('a half-closed connection ends its poll');
}

# One that vanishes without a word is asked for within a minute: the timer runs, in hundredths of a second.
{
    my $connection = park($web, 'silent', timeout => 300000);
    my $ports = sprintf '%04X [0-9A-F]{8}:%04X', $web->port, $connection->{socket}->sockport;
    my ($timer, $when) = slurp_file('/proc/net/tcp') =~ /:$ports 01 \S+ ([0-9A-F]{2}):([0-9A-F]+)/;
    is($timer, '02', 'N5: a connection is kept alive while its poll is parked');
    cmp_ok(hex $when, '<=', 6000, 'N5: by a question a minute');
    $connection->close;
    wait_until(sub { parked($web) == 0 }, 'the poll is dropped');
}

# Nor does the next request, sent ahead, hide that its client left.
for my $leave (sub { $_[0]->close }, \&reset_connection)
{
    my $connection = park($web, 'ahead', timeout => 300000);
    $connection->send('GET', '/status');
    is(parked($web), 1, 'a poll stays parked when another request follows');
    $leave->($connection);
    wait_until(sub { parked($web) == 0 }, 'the poll is dropped');
}

# Polls give up in the order of their time-outs.
{
    my @polls = map { park($web, 'timeout', timeout => $_) } 3000, 2000, 1000;
    for my $i (0 .. 2)
    {
        my $response = $polls[$i]->receive;
        is("$response->{status}$response->{body}", '204', 'a poll that ran out is answered 204');
        is(scalar(grep { !$_->readable } @polls[ $i + 1 .. 2 ]), 0, 'after those with less time');
    }
    is($web->get("/api/v1/pop/queue/timeout?wait=true&timeout=$_")->{status}, 204, "timeout=$_ does not wait") for 0, -1;
}

# A message may not be lost on a poll whose client leaves just then. A locked table keeps the
# woken poll from finishing while its client goes. Other than a push, a transaction does not carry polls along.
{
    my $session = $queen->node->background_psql('postgres', on_error_stop => 1);
    my ($first, $second) = map { park($web, 'gone?leaseSeconds=3600') } 1 .. 2;
    $session->query_safe('BEGIN; LOCK TABLE queen.log_consumers');
    transact_to($web, 'gone', 1);
    is(parked($web), 1, 'the first poll was woken');
    reset_connection($first);
    $session->query_safe('COMMIT');
    is(payloads($second), '1', 'N6: its client left while it looked: the lease goes on to the next poll');
    is($queen->sql(q{SELECT batch_retry_count FROM queen.log_consumers c JOIN queen.log_partitions p
                     ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'gone'}),
        0, 'N6: which costs no retry');

    my $pop = $web->connect;
    push_to('gone2', 1);
    $session->query_safe('BEGIN; LOCK TABLE queen.log_consumers');
    $pop->send('GET', '/api/v1/pop/queue/gone2?leaseSeconds=3600');
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web'
                                   AND wait_event_type = 'Lock'}) == 1 }, 'the pop waits');
    $pop->close;
    $session->query_safe('COMMIT');
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
                                   JOIN queen.queues q ON q.id = p.queue_id
                                   WHERE q.name = 'gone2' AND attempt_count = 1 AND worker_id IS NULL}) == 1 }, 'the lease came and went');
    my @messages;
    wait_until(sub { @messages = $web->pop('gone2') }, 'the message is free');
    is(join(' ', map { "$_->{data}/$_->{deliveryAttempt}" } @messages), '1/2', 'N6: a pop that does not wait gives back, too');

    # The only connection is busy, so that a woken poll has to queue.
    my $narrow = $queen->start_frontend(args => [ @no_fallback, qw(--threads 1 --read-connections 1) ]);
    ($first, $second) = map { park($narrow, 'queued') } 1 .. 2;
    $session->query_safe('BEGIN; LOCK TABLE queen.log_consumers');
    my $blocker = $narrow->connect;
    $blocker->send('GET', '/api/v1/pop/queue/gone2');
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web'
                                   AND wait_event_type = 'Lock'}) == 1 }, 'another pop keeps the connection busy');
    transact_to($narrow, 'queued', 1);
    is(parked($narrow), 1, 'the first poll was woken');
    reset_connection($first);
    wait_until(sub { parked($narrow) == 0 }, 'the second is woken in its stead');
    $session->query_safe('COMMIT');
    $session->quit;
    is(payloads($second), '1', 'a poll that hangs up before it looked passes the wake-up on');

    for my $round (1 .. 20)
    {
        my @polls = map { park($web, "race$round") } 1 .. 2;
        my $push = $web->connect;
        kill 'STOP', $web->pid;    # so that both arrive together
        reset_connection($polls[0]) if $round % 2;
        $push->send('POST', '/api/v1/push', { items => [ { queue => "race$round", payload => $round } ] });
        reset_connection($polls[0]) unless $round % 2;
        kill 'CONT', $web->pid;
        is(payloads($polls[1]), $round, 'a poll that hangs up passes the wake-up on');
    }
}

# An answer that cannot be written gives its lease back.
{
    my $payload = '"' . 'x' x 1_000_000 . '"';
    $web->post('/api/v1/push', '{"items":[' . join(',', (qq({"queue":"unread","payload":$payload})) x 10) . ']}');
    my $before = $web->get('/metrics')->{json}{queen}{popMessages};
    my $connection = QueenTest::Connection->new($web->port, rcvbuf => 8192);
    $connection->send('GET', '/api/v1/pop/queue/unread?leaseSeconds=3600');
    wait_until(sub { $web->get('/metrics')->{json}{queen}{popMessages} == $before + 10 }, 'the answer is on its way');
    reset_connection($connection);
    wait_until(
        sub {
            $queen->sql(q{SELECT count(*) FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
                JOIN queen.queues q ON q.id = p.queue_id
                WHERE q.name = 'unread' AND c.worker_id IS NULL AND c.batch_retry_count = 0}) == 1;
        },
        'the lease is given back');
    is($web->get('/api/v1/pop/queue/unread')->{status}, 200, 'N6: messages of an answer that was cut off come again');
}

# A lease that ends wakes a poll: acknowledged with more behind it, given back, failed, expired.
{
    push_to('lease', 1 .. 3);
    my @batch = $web->pop('lease', batch => 2);
    my $poll = park($web, 'lease?batch=2');
    $web->ack('completed', $batch[0]);
    ok(!$poll->readable, 'half an acknowledgement ends no lease');
    $web->ack('completed', $batch[1]);
    is(payloads($poll), '3', 'V-54: an acknowledgement wakes a poll for what is behind the batch');

    push_to('nack', 1 .. 2);
    for my $status ('retry', 'failed')
    {
        @batch = $web->pop('nack', partition => 'Default');
        my @polls = map { park($web, $_) } 'nack', 'nack/partition/Default';
        my $other = park($web, 'nack?consumerGroup=other');
        $web->ack($status, @batch);
        wait_until(sub { grep { $_->readable } @polls }, 'a poll is answered');
        my ($answered) = grep { $_->readable } @polls;
        my $answer = $answered->receive->{json};
        is(join(' ', map { $_->{data} } @{ $answer->{messages} }), '1 2', "V-54: $status: the batch is there at once");
        ok(!$other->readable, 'V-54: but not for another group');
        $_->close for @polls, $other;
        wait_until(sub { parked($web) == 0 }, 'the polls are gone');
        $web->ack('retry', @{ $answer->{messages} });
    }

    @batch = $web->pop('nack', leaseSeconds => 1);
    is(payloads(park($web, 'nack')), '1 2', 'a lease that expires is noticed');
}

# Queues that hold messages back.
for ([ delay => delayedProcessing => 1 ], [ window => windowBuffer => 1 ])
{
    my ($queue, $option, $seconds) = @$_;
    configure($queue, $option => $seconds);
    push_to($queue, 1);
    is($web->get("/api/v1/pop/queue/$queue")->{status}, 204, "$option: not yet");
    my $message = park($web, $queue)->receive->{json}{messages}[0];
    is($message->{data}, 1, "$option: a poll gets the message when it is due");
    is($queen->sql("SELECT clock_timestamp() - '$message->{createdAt}'::timestamptz >= interval '$seconds s'"), 't', "$option: not before");

    my $poll = park($web, "$queue?consumerGroup=parked-before");
    push_to($queue, 2);
    is(payloads($poll), '2', "$option: a poll that waited before, too");
}
configure('fill', minPopWaitTime => 700);
push_to('fill', 1);
my $fuller = park($web, 'fill?batch=3');
push_to('fill', $_) for 2 .. 3;
is(payloads($fuller), '1 2 3', 'minPopWaitTime gathers a full batch');
push_to('fill', 4);
is(join(' ', map { $_->{data} } $web->pop('fill', wait => 'true', batch => 3, consumerGroup => 'g', subscriptionMode => 'all')),
    '1 2 3', 'a full one is not held');
push_to('fill2', 1);
configure('fill2', minPopWaitTime => 60000);
is(payloads(park($web, 'fill2?batch=3', timeout => 500)), '1', 'nor anything beyond the time-out');

# A wake-up crosses threads.
{
    my $threads = $queen->start_frontend(args => [ @no_fallback, qw(--threads 2) ]);
    my @polls = map { park($threads, "cross$_") } 1 .. 24;
    $threads->push({ queue => "cross$_", payload => $_ }) for 1 .. 24;
    is(payloads($polls[ $_ - 1 ]), $_, 'a push through one thread wakes a poll of any') for 1 .. 24;
}

# Another front end's push is found by the fallback poll.
{
    my $fallback = $queen->start_frontend;
    my $poll = park($fallback, 'elsewhere');
    push_to('elsewhere', 1);
    is(payloads($poll), '1', 'V-35: a push through another front end is found');
}

# A port has one front end.
{
    my $second = $queen->start_frontend(port => $web->port, may_fail => 1);
    is($second->wait_ended >> 8, 1, 'a second front end on a port fails');
    like($second->log, qr/could not listen .*Address already in use/, 'and says why');
    is($web->get('/health')->{status}, 200, 'the first goes on');
}

$queen->finish;
