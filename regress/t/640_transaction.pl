# POST /api/v1/transaction: pushes and acknowledgements commit together or not at all.
use strict;
use warnings;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('transaction');
my $web = $queen->start_frontend(env => { QUEEN_ENCRYPTION_KEY => '0f' x 32 });
my $keyless = $queen->start_frontend;
my $nobody = '00000000-0000-4000-8000-000000000000';
my ($true, $false) = (JSON::PP::true, JSON::PP::false);

sub transact { my ($body) = @_; return $web->post('/api/v1/transaction', $body); }
sub bundle { my ($operations, @leases) = @_; return transact({ operations => $operations, @leases ? (requiredLeases => \@leases) : () }); }
sub push_of { my ($queue, $id, %more) = @_; return { type => 'push', queue => $queue, payload => $id, transactionId => $id, %more }; }
sub ack_of { my ($message, %more) = @_; return { type => 'ack', (map { $_ => $message->{$_} } qw(transactionId partitionId)), %more }; }
sub fill { my ($queue, @ids) = @_; $web->push(map { { queue => $queue, payload => $_, transactionId => $_ } } @ids); return; }
sub configure { my ($queue, %options) = @_; $web->post('/api/v1/configure', { queue => $queue, options => \%options }); return; }

# Everything a transaction could have changed.
sub state_of_all
{
    return $queen->sql(
        q{SELECT (SELECT count(*) FROM queen.queues), (SELECT sum(last_offset) FROM queen.log_partitions),
                 (SELECT count(*) FROM queen.log_segments), (SELECT count(*) FROM queen.log_txns), (SELECT count(*) FROM queen.log_dlq),
                 (SELECT md5(string_agg(c::text, ' ' ORDER BY c.partition_id, c.consumer_group)) FROM queen.log_consumers AS c)});
}

# A refusal: 200 with the shape of a failure, and nothing has changed.
sub refused
{
    my ($body, $reason, $error, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $before = state_of_all();
    my $response = transact($body);
    my $answer = $response->{json};
    like(delete $answer->{transactionId}, qr/^[0-9a-f-]{36}\z/, "$name: has an id");
    is_deeply([ $response->{status}, $answer ], [ 200, { success => $false, error => $error, reason => $reason, results => [] } ], "$name: is refused");
    is(state_of_all(), $before, "$name: and nothing has changed");
    return;
}

# The answer, element by element, and what is stored.
{
    fill('in', map { "i$_" } 1 .. 4);
    my @messages = $web->pop('in', batch => 4);
    my $lease = $messages[0]{leaseId};
    my $response = bundle(
        [
            { type => 'push', items => [ { queue => 'out', payload => { n => 1 }, transactionId => 'o1' }, { queue => 'out', data => undef, partition => 'p' } ] },
            ack_of($messages[0]),
            { type => 'push', queue => 'out', transactionId => 'o1', payload => 'again' },
            { type => 'push', queue => 'out', traceId => $nobody },
            ack_of($messages[1], status => 'success')
        ],
        $lease);
    my $answer = $response->{json};
    is("$response->{status} $answer->{success}", '200 1', 'a transaction commits');
    isnt($answer->{transactionId}, '', 'and has an id');
    is_deeply([ map { $_->{index} } @{ $answer->{results} } ], [ 0 .. 5 ], 'one result per message and acknowledgement');
    is_deeply([ map { $_->{type} } @{ $answer->{results} } ], [qw(push push ack push push ack)], 'in request order');
    is_deeply([ map { $_->{success} } @{ $answer->{results} } ], [ ($true) x 6 ], 'all good');
    my @results = @{ $answer->{results} };
    is("$results[0]{transactionId} $results[0]{queueName} $results[3]{duplicate} " . ($results[0]{duplicate} // 'first'), 'o1 out 1 first', 'a repeated id is named');
    is($results[3]{messageId}, $results[0]{messageId}, 'with the id of the first');
    is($results[1]{transactionId}, $results[1]{messageId}, 'without an id it is the message id');
    is_deeply($results[2], { index => 2, type => 'ack', success => $true, transactionId => 'i1', error => undef, leaseReleased => $false, dlq => $false, noop => $false }, 'an acknowledgement');
    my @out = $web->pop('out', partition => 'Default', autoAck => 'true');
    is_deeply([ map { $_->{data} } @out ], [ { n => 1 }, {} ], 'the first wins; no payload is an empty object');
    is_deeply([ map { $_->{id} } @out ], [ map { $results[$_]{messageId} } 0, 4 ], 'ids are those of the answer');
    is_deeply([ map { $_->{traceId} } @out ], [ undef, $nobody ], 'the trace id is kept');
    is_deeply([ map { $_->{data} } $web->pop('out', partition => 'p', autoAck => 'true') ], [undef], 'data is another name for payload');

    # The rest of the batch is still leased; the last one ends the lease.
    is(bundle([ ack_of($messages[2], leaseId => $lease) ])->{json}{results}[0]{leaseReleased}, $false, 'a partial ack keeps the lease');
    is(bundle([ ack_of($messages[3], leaseId => $lease) ])->{json}{results}[0]{leaseReleased}, $true, 'the last one ends it');
    is($queen->sql("SELECT committed FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'in'"), 3,
        'the cursor is at the end');
}

# Refusals (V-61).
{
    fill('refuse', qw(r1 r2));
    my @messages = $web->pop('refuse', batch => 2, leaseSeconds => 60);
    my $lease = $messages[0]{leaseId};
    my $push = push_of('never', 'n1');
    my $ack = ack_of($messages[0], leaseId => $lease);
    refused({ operations => [ $push, $ack, push_of('refuse', 'r2') ] },
        'duplicate', 'transaction id "r2" is already in partition "Default" of queue "refuse"', 'V-61: a duplicate');
    refused({ operations => [ $push, { %$ack, transactionId => 'what' } ] }, 'ack_rejected', 'unresolved transaction id (transaction id "what")', 'V-61: an unknown id');
    refused({ operations => [ $push, { %$ack, transactionId => "a\0b" } ] }, 'ack_rejected', 'unresolved transaction id', 'V-61: an id that no message has');
    refused({ operations => [ $push, { %$ack, leaseId => $nobody } ] }, 'ack_rejected', 'invalid or expired lease', 'V-61: a foreign lease');
    refused({ operations => [ $push, $ack ], requiredLeases => [$nobody] }, 'ack_rejected', 'invalid or expired lease', 'V-61: one lease of two is not live');
    refused({ operations => [ $push, $ack ], requiredLeases => ['no-uuid'] }, 'ack_rejected', 'invalid or expired lease', 'V-61: a lease that is no id');
    refused({ operations => [ $push, ack_of($messages[0], consumerGroup => 'g') ] }, 'ack_rejected', 'consumer not found (transaction id "r1")', 'V-61: no cursor');
    refused({ operations => [ $push ], requiredLeases => [$nobody] }, 'ack_rejected', 'invalid or expired lease', 'a required lease without an ack');
    is(bundle([$push], $lease)->{json}{success}, $true, 'a required lease that is live elsewhere');

    # Below the cursor: tolerated without pushes or without a lease, else a second worker would push again.
    is(bundle([$ack])->{json}{success}, $true, 'the first is acked');
    refused({ operations => [ push_of('never', 'n2'), $ack ] }, 'ack_rejected', 'already committed (transaction id "r1")', 'V-62: pushes under a lease whose message was acked');
    my $again = bundle([ { %$ack, status => 'failed' } ])->{json};
    is("$again->{success} $again->{results}[0]{success} $again->{results}[0]{error}", '1 0 already committed', 'a repeated acknowledgement alone is no fault');
    is(bundle([ push_of('never', 'n2'), ack_of($messages[0]) ])->{json}{results}[1]{noop}, $true, 'without a lease it is a noop');
}

# V-62: the lease of the first worker ran out, another one holds the message.
{
    fill('fence', 'f1');
    my ($stale) = $web->pop('fence', leaseSeconds => 1);
    my ($fresh);
    wait_until(sub { ($fresh) = $web->pop('fence', leaseSeconds => 60) }, 'the lease expires');
    isnt($fresh->{leaseId}, $stale->{leaseId}, 'another lease');
    for my $body (
        { operations => [ push_of('done', 'd1'), ack_of($stale) ], requiredLeases => [ $stale->{leaseId} ] },
        { operations => [ push_of('done', 'd1'), ack_of($stale, leaseId => $stale->{leaseId}) ] },
        { operations => [ push_of('done', 'd1'), ack_of($stale) ], requiredLeases => [ $stale->{leaseId}, $fresh->{leaseId} ] })
    {
        refused($body, 'ack_rejected', 'invalid or expired lease', 'V-62: the stale worker');
    }
    is(bundle([ push_of('done', 'd1'), ack_of($fresh) ], $fresh->{leaseId})->{json}{success}, $true, 'V-62: the holder');
    refused({ operations => [ push_of('done', 'd2'), ack_of($stale) ], requiredLeases => [ $stale->{leaseId} ] }, 'ack_rejected', 'invalid or expired lease', 'V-62: and never the other');
    is(scalar(() = $web->pop('done', autoAck => 'true')), 1, 'V-62: one output');
}

# V-64: failed, retry and dlq act as in plain acks; the dead letter is part of the transaction.
{
    configure('negative', retryLimit => 1);
    fill('negative', qw(a b c));
    my $take = sub { return $web->pop('negative', batch => 10) };
    my $names = sub { return join ' ', map { "$_->{data}" } @_ };
    my @messages = $take->();
    my $result = bundle([ ack_of($messages[0]), ack_of($messages[1], status => 'retry') ], $messages[0]{leaseId})->{json}{results};
    is("$result->[0]{leaseReleased} $result->[1]{success}", '1 1', 'V-64: retry gives the rest back');
    @messages = $take->();
    is($names->(@messages), 'b c', 'V-64: from that message on');
    bundle([ ack_of($messages[0], status => 'failed', error => 'why') ], $messages[0]{leaseId});
    @messages = $take->();
    refused({ operations => [ ack_of($messages[0], status => 'failed', error => "w\0hy", leaseId => $messages[0]{leaseId}), push_of('negative', 'c') ] },
        'duplicate', 'transaction id "c" is already in partition "Default" of queue "negative"', 'V-64: a dead letter that is rolled back');
    $result = bundle([ ack_of($messages[0], status => 'failed', error => "w\0hy"), push_of('negative', 'd') ], $messages[0]{leaseId})->{json}{results};
    is("$result->[0]{success} $result->[0]{dlq}", '1 1', 'V-64: exhausted, it is dead-lettered');
    my $letters = $web->get('/api/v1/dlq?queue=negative')->{json}{messages};
    is(join(' ', map { "$_->{data} $_->{errorMessage}" } @$letters), 'b w hy', 'V-64: with the text');
    is($names->($take->()), 'c d', 'V-64: what follows is free');
}

# Names (faults.md 3.4): the same bytes come back.
for my $name (
    "'; DROP TABLE queen.queues; --", '$$ $1 %s %n', 'back\\slash `tick`', "\x{202e}rtl", "emoji \x{1f600}", "e\x{301}", "\x{e9}",
    ' spaces ', '..', 'a/b', 'select', 'queen.log_segments', 'q' x 255)
{
    my $short = length $name > 40 ? 'a long one' : $name;
    $short =~ s/([^ -~])/sprintf '\\x%x', ord $1/ge;
    my $answer = bundle([ push_of($name, $name, partition => $name, payload => $name) ])->{json};
    is_deeply([ @{ $answer->{results}[0] }{qw(queueName partition transactionId)} ], [ ($name) x 3 ], "pushed: $short");
    my ($message) = $web->pop($name, partition => $name, consumerGroup => $name, subscriptionMode => 'all');
    is("$message->{transactionId}|$message->{data}", "$name|$name", "popped: $short");
    $answer = bundle([ ack_of($message, status => 'dlq', error => $name, consumerGroup => $name) ], $message->{leaseId})->{json};
    is($answer->{results}[0]{dlq}, $true, "dead-lettered: $short");
    my $escaped = QueenTest::Frontend::escape($name);
    my ($letter) = @{ $web->get("/api/v1/dlq?queue=$escaped&partition=$escaped&consumerGroup=$escaped")->{json}{messages} };
    is_deeply([ @$letter{qw(transactionId queue partition consumerGroup errorMessage data)} ], [ ($name) x 6 ], "listed: $short");
    is($web->get("/api/v1/messages/$message->{partitionId}/$escaped")->{json}{status}, 'dead_letter', "shown: $short");
    is($web->request('DELETE', "/api/v1/messages/$message->{partitionId}/$escaped")->{status}, 200, "deleted: $short");
}

# Bad input is 400 in the shape of a failure, with an exact text.
{
    my $bad = sub {
        my ($body, $error) = @_;
        my $response = transact($body);
        my $answer = $response->{json};
        delete $answer->{transactionId};
        is_deeply([ $response->{status}, $answer ], [ 400, { success => $false, error => $error, reason => 'bad_request', results => [] } ], $error);
    };
    my $ack = { type => 'ack', transactionId => 't', partitionId => $nobody };
    $bad->('{}', 'operations is required and must be an array');
    $bad->('{"operations":[]}', 'operations is empty');
    $bad->('{"operations":[],"operations":[]}', 'operations appears twice');
    $bad->({ operations => [ {} ] }, 'operations[0].type must be push or ack');
    $bad->({ operations => [ push_of('q', 'x'), { type => 'delete' } ] }, 'operations[1].type must be push or ack');
    $bad->({ operations => [ { type => 'push' } ] }, 'operations[0].queue is required');
    $bad->({ operations => [ { type => 'push', items => [ { queue => 'q' }, {} ] } ] }, 'operations[0].items[1].queue is required');
    $bad->({ operations => [ { type => 'push', queue => "a\nb" } ] }, 'operations[0].queue holds a control character');
    $bad->({ operations => [ { type => 'push', queue => 'q', partition => '' } ] }, 'operations[0].partition is empty');
    $bad->({ operations => [ { type => 'push', queue => 'q', transactionId => 'x' x 65536 } ] }, 'operations[0].transactionId is longer than 65535 bytes');
    $bad->({ operations => [ { type => 'push', queue => 'q', traceId => 'x' } ] }, 'operations[0].traceId is not a UUID');
    $bad->('{"operations":[{"type":"push","queue":"q","payload":1,"data":2}]}', 'operations[0].data appears twice');
    $bad->({ operations => [ { %$ack, transactionId => undef } ] }, 'operations[0].transactionId is required');
    $bad->({ operations => [ { %$ack, partitionId => '' } ] }, 'operations[0].partitionId is required');
    $bad->({ operations => [ { %$ack, partitionId => 'p' } ] }, 'operations[0].partitionId is not a UUID');
    $bad->({ operations => [ { %$ack, consumerGroup => "g\t" } ] }, 'operations[0].consumerGroup holds a control character');
    $bad->({ operations => [ { %$ack, items => [] } ] }, 'operations[0].items is for a push');
    $bad->({ operations => [$ack], requiredLeases => [1] }, 'requiredLeases[0].id must be a string');
    $bad->({ operations => [$ack], kv => [ {} ] }, 'kv is not offered by this server');
    $bad->({ operations => [$ack], timers => {} }, 'timers is not offered by this server');
    like(transact($_)->{json}{error}, qr/^bad body: /, "bad body: $_") for '', '[]', '{"operations":{}}', '{"operations":[1]}', "{\"operations\":[\"\xff\"]}";
    is($web->get('/api/v1/transaction')->{status}, 405, 'GET is not allowed');
    is(transact('{"operations":[{"type":"push","queue":"deep","payload":' . '[' x 512 . ']' x 512 . '}]}')->{status}, 200, 'a payload of 512 levels');
    is(transact('{"operations":[{"type":"push","queue":"deep","payload":' . '[' x 513 . ']' x 513 . '}]}')->{status}, 400, 'and of 513');

    # The limit on operations, which a segment holds just so.
    my $many = sub { my ($n) = @_; return '{"operations":[{"type":"push","items":[' . join(',', ('{"queue":"many","payload":0}') x $n) . ']}]}' };
    is(transact($many->(10_000))->{status}, 200, '10,000 messages');
    $bad->($many->(10_001), 'operations has more than 10000 elements');
    is($queen->sql("SELECT last_offset, segments FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'many'"), '9999|1', 'are stored once');
}

# A partition whose messages are more than one segment takes.
{
    my $payload = '"' . 'x' x (3 * 1024 * 1024) . '"';
    my $items = join ',', map { qq({"queue":"large","transactionId":"l$_","payload":$payload}) } 1 .. 4;
    my $answer = transact(qq({"operations":[{"type":"push","items":[$items]}]}));
    is(scalar @{ $answer->{json}{results} }, 4, 'large messages');
    is($queen->sql("SELECT last_offset, segments FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'large'"), '3|2', 'in two segments');
    is_deeply([ map { $web->get('/api/v1/pop/queue/large?autoAck=true&batch=1')->{body} =~ /"transactionId":"(\w+)"/ } 1 .. 4 ], [ map { "l$_" } 1 .. 4 ], 'in order');
}

# Encrypted queues.
{
    $web->post('/api/v1/configure', { queue => $_, options => { encryptionEnabled => $true } }) for qw(secret1 secret2);
    my $operations = [ push_of('secret1', 'a marker'), push_of('clear', 'b'), push_of('secret2', 'c') ];
    my $answer = $keyless->post('/api/v1/transaction', { operations => $operations })->{json};
    is("$answer->{success} $answer->{reason}", '0 bad_request', 'without a key nothing is stored');
    is(bundle($operations)->{json}{success}, $true, 'with it all is');
    is(join(' ', map { ($web->pop($_, autoAck => 'true'))[0]{data} } qw(secret1 clear secret2)), 'a marker b c', 'and comes back');
    is(($keyless->pop('secret1', autoAck => 'true', consumerGroup => 'g', subscriptionMode => 'all'))[0]{data}{encrypted} ne '', 1, 'as an envelope without the key');
}

# A parked pop is woken, by what is pushed and by a lease that ends.
{
    my $connection = $web->connect;
    $connection->send('GET', '/api/v1/pop/queue/wake?wait=true&timeout=60000&autoAck=true');
    wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1 }, 'a pop is parked');
    bundle([ push_of('wake', 'w1') ]);
    is($connection->receive->{json}{messages}[0]{data}, 'w1', 'a push wakes it');
}

# V-63: bundles over the same partitions in opposite order.
{
    my @connections = map { $web->connect } 1 .. 8;
    my $failed = 0;
    for my $round (1 .. 25)
    {
        my @order = map { push_of('cross', "$round-$_", partition => "p$_") } 1 .. 6;
        for my $i (0 .. $#connections)
        {
            my @operations = map { { %$_, transactionId => "$_->{transactionId}-$i" } } ($i % 2 ? @order : reverse @order);
            $connections[$i]->send('POST', '/api/v1/transaction', { operations => \@operations });
        }
        $failed += !$_->receive->{json}{success} for @connections;
    }
    is($failed, 0, 'V-63: bundles in opposite order all commit');
    unlike(slurp_file($queen->node->logfile), qr/deadlock detected/, 'V-63: without a deadlock');
}

# A lease that ends wakes a poll, and the others go on waiting.
{
    fill('polled', 'a', 'b', 'c');
    my @leased = $web->pop('polled', batch => 2);
    my $parked = sub { return $web->get('/metrics')->{json}{queen}{parkedPops}; };
    my @polls = map { $web->connect } 1 .. 2;
    my $before = $parked->();
    $_->send('GET', '/api/v1/pop/queue/polled?wait=true&timeout=60000') for @polls;
    wait_until(sub { $parked->() == $before + 2 }, 'two polls wait');
    is(bundle([ map { ack_of($_) } @leased ], $leased[0]{leaseId})->{json}{success}, $true, 'both messages of the lease');
    wait_until(sub { grep { $_->readable } @polls }, 'a poll is answered');
    my ($woken) = grep { $_->readable } @polls;
    is(join(' ', map { $_->{data} } @{ $woken->receive->{json}{messages} }), 'c', 'it has what is behind them');
    wait_until(sub { $parked->() == $before + 1 }, 'the other goes on waiting');
}

# V-60: a crash in the middle leaves nothing. The bundle waits for a row lock when it is hit.
for my $victim (qw(backend server))
{
    fill("crash-$victim", 'c1');
    my ($message) = $web->pop("crash-$victim", leaseSeconds => 600);
    $web->push({ queue => "held-$victim", payload => 0 });
    $queen->sql("ALTER SYSTEM SET restart_after_crash = on; SELECT pg_reload_conf()");
    my $holder = $queen->node->background_psql('postgres');
    $holder->query_safe("BEGIN; SELECT FROM queen.log_consumers WHERE worker_id = '$message->{leaseId}' FOR UPDATE");
    my $connection = $web->connect;
    $connection->send('POST', '/api/v1/transaction', { operations => [ push_of("held-$victim", 'x'), ack_of($message) ], requiredLeases => [ $message->{leaseId} ] });
    my $waiting = q{FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%log_transaction%'};
    wait_until(sub { $queen->sql("SELECT count(*) $waiting") }, 'the bundle waits in the middle');
    kill 'KILL', $queen->sql("SELECT pid $waiting") if $victim eq 'backend';
    $queen->node->stop('immediate') if $victim eq 'server';
    my $response = $connection->receive;
    is("$response->{status} $response->{json}{success} " . exists $response->{headers}{'retry-after'}, '503 0 1', "V-60: the $victim is killed: unknown, and no success");
    eval { $holder->quit };
    $queen->node->start if $victim eq 'server';
    wait_until(sub { my $result = eval { $web->get('/health') }; $result && $result->{status} == 200 }, 'the server is back');
    is($queen->sql("SELECT string_agg(q.name || ' ' || p.last_offset, ', ' ORDER BY q.name) FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name ~ '$victim'"),
        "crash-$victim 0, held-$victim 0", "V-60: nothing of it is there");
    my $answer = bundle([ push_of("held-$victim", 'x'), ack_of($message) ], $message->{leaseId})->{json};
    is($answer->{success}, $true, 'V-60: and it can be repeated') or diag $answer->{error};
}

$queen->finish;
