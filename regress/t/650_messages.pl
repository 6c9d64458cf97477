# GET /api/v1/messages, one message, its deletion; DELETE /api/v1/dlq; replay by both routes.
use strict;
use warnings;
use JSON::PP ();
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('messages', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend(env => { QUEEN_ENCRYPTION_KEY => '0f' x 32 });
my $keyless = $queen->start_frontend;
my $nobody = '00000000-0000-4000-8000-000000000000';
my ($true, $false) = (JSON::PP::true, JSON::PP::false);

sub fill { my ($queue, @ids) = @_; $web->push(map { { queue => $queue, payload => { id => $_ }, transactionId => $_ } } @ids); return; }
sub list { my ($query) = @_; return @{ $web->get("/api/v1/messages?$query")->{json}{messages} }; }
sub ids { return join ' ', map { $_->{transactionId} } @_; }
sub bury { my ($queue, %pop) = @_; my ($message) = $web->pop($queue, batch => 1, %pop); $web->ack('dlq', $message); return $message; }
sub letters { my ($query) = @_; return @{ $web->get("/api/v1/dlq?$query")->{json}{messages} }; }

# The list.
{
    fill('shop.orders.x', qw(m1 m2 m3));
    $web->push({ queue => 'shop.orders.x', partition => 'p', payload => undef, transactionId => 'm4' });
    my $answer = $web->get('/api/v1/messages?queue=shop.orders.x&limit=1')->{json};
    my $message = $answer->{messages}[0];
    like($message->{createdAt}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/, 'a time in milliseconds');
    is_deeply(
        { %$message, map { $_ => 'set' } qw(id createdAt partitionId txnHash) },
        {
            (map { $_ => 'set' } qw(id createdAt partitionId txnHash)),
            transactionId => 'm4', queuePath => 'shop.orders.x/p', queue => 'shop.orders.x', partition => 'p', namespace => 'shop', task => 'orders',
            status => 'pending', queueStatus => 'pending', busStatus => { consumedBy => 0, totalGroups => 0 }, traceId => undef, producerSub => undef,
            queuePriority => 0, payloadAvailable => $true, segment => { seq => 0, frameIdx => 0 }, leaseExpiresAt => undef, data => undef, payload => undef,
            isEncrypted => $false
        },
        'a message');
    is_deeply([ @$answer{qw(total mode)} ], [ 1, { hasQueueMode => $false, busGroupsCount => 0, type => 'none' } ], 'the page');
    is(ids(list('queue=shop.orders.x')), 'm4 m3 m2 m1', 'newest first');
    is(ids(list('queue=shop.orders.x&limit=2&offset=1')), 'm3 m2', 'a page');
    is(ids(list("$_&partition=p")), 'm4', $_) for 'queue=shop.orders.x', 'namespace=shop', 'ns=shop', 'task=orders', 'status=pending', 'queue=&namespace=&task=&status=&from=&to=';
    is(ids(list($_)), '', $_) for 'queue=none', 'namespace=none', 'task=none', 'queue=shop.orders.x&partition=none', 'queue=shop.orders.x&from=2120-01-01', 'queue=shop.orders.x&to=2020-01-01',
      'queue=shop.orders.x&status=completed', 'queue=shop.orders.x&limit=0';
    is(ids(list('queue=shop.orders.x&limit=x&offset=-1')), 'm4 m3 m2 m1', 'numbers that are none mean the default');

    # The default window is an hour; an end to the minute includes that minute.
    my $minute = $queen->sql("UPDATE queen.log_segments SET created_at = date_trunc('minute', now()) - interval '2 hours' + interval '30 seconds';
        UPDATE queen.log_partitions SET last_created_at = date_trunc('minute', now()) - interval '2 hours' + interval '30 seconds';
        SELECT to_char((date_trunc('minute', now()) - interval '2 hours') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI')");
    is(ids(list('queue=shop.orders.x')), '', 'older than an hour');
    is(scalar(() = list("queue=shop.orders.x&from=${minute}Z&to=${minute}Z")), 4, 'the whole minute');
    is(scalar(() = list("queue=shop.orders.x&from=${minute}Z&to=${minute}:00Z")), 0, 'and not when seconds are given');
    is_error($web->get("/api/v1/messages?$_=soon"), 400, "$_ is not a time", "$_ that is no time") for qw(from to);
    is_error($web->get('/api/v1/messages?status=lost'), 400, 'status must be pending, processing, completed or dead_letter', 'a status that is none');
    is_error($web->get('/api/v1/messages?queue=%ff'), 400, 'queue, partition, namespace or task is not a valid name', 'a name that is none');
}

# One message, V-84.
{
    $web->post('/api/v1/configure', { queue => 'one', options => { leaseTime => 77, retryLimit => 2 } });
    fill('one', qw(a b));
    my ($listed) = list('queue=one');
    my $show = sub { my ($id) = @_; return $web->get("/api/v1/messages/$listed->{partitionId}/$id") };
    my $answer = $show->('a')->{json};
    is_deeply(
        { %$answer, map { $_ => 'set' } qw(id createdAt partitionId) },
        {
            (map { $_ => 'set' } qw(id createdAt partitionId)),
            transactionId => 'a', data => { id => 'a' }, payload => { id => 'a' }, traceId => undef, producerSub => undef, partition => 'Default', isEncrypted => $false,
            queue => 'one', queuePath => 'one/Default', namespace => '', task => '', status => 'pending', errorMessage => undef, retryCount => 0, leaseExpiresAt => undef,
            queueConfig => { leaseTime => 77, retryLimit => 2, retryDelay => 1000, ttl => 3600, priority => 0 },
            mode => { hasQueueMode => $false, busGroupsCount => 0, type => 'none' }, consumerGroups => []
        },
        'V-84: pending');
    my @messages = $web->pop('one', consumerGroup => 'g', subscriptionMode => 'all', batch => 2);
    $answer = $show->('a')->{json};
    is("$answer->{status} $answer->{mode}{type} $answer->{consumerGroups}[0]{name} " . ($answer->{leaseExpiresAt} eq $answer->{consumerGroups}[0]{leaseExpiresAt}), 'processing bus g 1', 'V-84: processing');
    $web->ack('completed', $messages[0]);
    is_deeply([ map { $_->{status} } $show->('a')->{json}, $show->('b')->{json} ], [qw(completed processing)], 'V-84: completed');
    my $response = $web->post('/api/v1/ack', { transactionId => 'b', partitionId => $listed->{partitionId}, leaseId => $messages[0]{leaseId}, consumerGroup => 'g', status => 'dlq', error => 'broken' });
    is_deeply([ @{ $show->('b')->{json} }{qw(status errorMessage)} ], [qw(dead_letter broken)], 'V-84: dead letter');
    is(ids(list("queue=one&status=$_->[0]")), $_->[1], "V-84: listed as $_->[0]") for [ completed => 'a' ], [ dead_letter => 'b' ], [ pending => '' ];

    is_error($web->get("/api/v1/messages/$_"), 404, 'Message not found', "no message $_") for "$listed->{partitionId}/none", "$nobody/a", 'no-uuid/a', "$listed->{partitionId}/%ff";
    my $delete = sub { my ($path) = @_; my $response = $web->request('DELETE', "/api/v1/messages/$path"); return "$response->{status} $response->{json}{success} $response->{json}{transactionId}" };
    is($delete->("$listed->{partitionId}/a"), '404 0 a', 'a live message is not deleted');
    is($delete->("$listed->{partitionId}/b"), '200 1 b', 'a dead letter is');
    is($delete->("$listed->{partitionId}/b"), '404 0 b', 'once');
    is($delete->($_), '404 0 b', "nothing at $_") for 'no-uuid/b', "$nobody/b";
    is($show->('b')->{json}{status}, 'completed', 'the message is still there');
}

# Replay, V-83.
{
    fill('replay', qw(r1 r2));
    for my $group (qw(g h)) { bury('replay', consumerGroup => $group, subscriptionMode => 'all') for 1 .. 2; }
    my %letter = map { ("$_->{consumerGroup}/$_->{transactionId}" => $_) } letters('queue=replay');
    is(scalar(keys %letter), 4, 'four letters');
    my $id = $letter{'g/r1'}{id};
    my $answer = $web->post("/api/v1/dlq/$id/replay")->{json};
    my $as = delete $answer->{replayedAs};
    is_deeply($answer, { success => $true, result => 'moved', queue => 'replay', partition => 'Default', consumerGroup => 'g', dlqId => $id, originalTransactionId => 'r1', dlqRowRemoved => $true },
        'V-83: a letter is moved');
    is_deeply([ @$as{qw(index transaction_id queueName status offset)} ], [ 0, "dlq:$id", 'replay', 'queued', 2 ], 'V-83: to the tail');
    my ($message) = $web->pop('replay', consumerGroup => 'g');
    is_deeply([ @$message{qw(id transactionId data)} ], [ $as->{message_id}, "dlq:$id", { id => 'r1' } ], 'V-83: as one new message');
    is(scalar(() = letters('queue=replay')), 3, "V-83: other groups' letters stay");
    my $response = $web->post("/api/v1/dlq/$id/replay");
    is_deeply([ $response->{status}, $response->{json} ], [ 404, { success => $false, result => 'gone', dlqId => $id, error => 'Message not found', message => 'there is no such dead letter' } ], 'V-83: once');
    is($web->post('/api/v1/dlq/no-uuid/replay')->{status}, 404, 'an id that is none');

    # By the message; then where else.
    my $path = "$letter{'h/r2'}{partitionId}/r2";
    is($web->post("/api/v1/messages/$path/retry")->{json}{result}, 'moved', 'by partition and transaction id');
    is(scalar(() = letters('queue=replay')), 2, 'one letter of the message');
    is($web->post("/api/v1/messages/$path/retry")->{json}{result}, 'moved', 'then the other');
    $response = $web->post("/api/v1/messages/$path/retry");
    is("$response->{status} $response->{json}{success} $response->{json}{transactionId} $response->{json}{error}", '404 0 r2 Message not found', 'then none');
    is($web->post("/api/v1/messages/$_/retry")->{status}, 404, "no message at $_") for "no-uuid/r2", "$nobody/r2";
    $id = $letter{'h/r1'}{id};
    for my $bad ([ '{"queue":""}', 'queue is empty' ], [ '{"partition":""}', 'partition is empty' ], [ '{"queue":1}', 'queue must be a string' ], [ '{"queue":"a\n"}', 'queue holds a control character' ])
    {
        is_error($web->post("/api/v1/dlq/$id/replay", $bad->[0]), 400, $bad->[1], "destination $bad->[0]");
    }
    like($web->post("/api/v1/dlq/$id/replay", '[')->{json}{error}, qr/^bad body: /, 'no JSON');

    # A destination that has the id already keeps the letter.
    $web->push({ queue => 'elsewhere', partition => 'p', transactionId => "dlq:$id", payload => 1 });
    $answer = $web->post("/api/v1/dlq/$id/replay", { queue => 'elsewhere', partition => 'p' })->{json};
    is("$answer->{result} $answer->{dlqRowRemoved} $answer->{replayedAs}{status}", 'duplicate 0 duplicate', 'a duplicate');
    $answer = $web->post("/api/v1/dlq/$id/replay", { queue => 'new', partition => 'p2' })->{json};
    is("$answer->{result} $answer->{queue} $answer->{partition}", 'moved new p2', 'another destination is created');
    is(($web->pop('new', autoAck => 'true'))[0]{data}{id}, 'r1', 'and has it');

    # Ten at a time: one moves it.
    fill('race', 'x');
    bury('race');
    my ($letter) = letters('queue=race');
    my @connections = map { $web->connect } 1 .. 10;
    $_->send('POST', "/api/v1/dlq/$letter->{id}/replay") for @connections;
    my %results;
    $results{ $_->receive->{json}{result} }++ for @connections;
    is_deeply(\%results, { moved => 1, gone => 9 }, 'V-83: of ten one moves it');
}

# Encrypted payloads are read, and travel, as they should.
{
    $web->post('/api/v1/configure', { queue => 'secret', options => { encryptionEnabled => $true } });
    fill('secret', 's1');
    bury('secret');
    my ($message) = list('queue=secret');
    is_deeply([ @$message{qw(data isEncrypted)} ], [ { id => 's1' }, $true ], 'decrypted in the list');
    is($keyless->get('/api/v1/messages?queue=secret')->{json}{messages}[0]{data}{id}, undef, 'not without the key');
    my $id = (letters('queue=secret'))[0]{id};
    is($keyless->post("/api/v1/dlq/$id/replay", { queue => 'open' })->{json}{result}, 'moved', 'an envelope can be moved without the key');
    is(($web->pop('open', autoAck => 'true'))[0]{data}{id}, 's1', 'and be read with it');
    fill('plain', 'p1');
    bury('plain');
    $id = (letters('queue=plain'))[0]{id};
    is($keyless->post("/api/v1/dlq/$id/replay", { queue => 'secret' })->{status}, 500, 'clear text is not stored there');
    is($web->post("/api/v1/dlq/$id/replay", { queue => 'secret' })->{json}{result}, 'moved', 'it is encrypted on its way');
    is($queen->sql("SELECT count(*) FROM queen.log_segments s JOIN queen.log_partitions p ON p.id = s.partition_id JOIN queen.queues q ON q.id = p.queue_id
        WHERE q.name = 'secret' AND NOT queen.log_all_encrypted(s.blob)"), 0, 'all of it') if $queen->sql("SELECT count(*) FROM pg_proc WHERE proname = 'log_all_encrypted'");
}

# A letter without a payload stays.
{
    fill('lost', 'l1');
    bury('lost');
    $queen->sql("UPDATE queen.log_dlq SET payload = NULL WHERE transaction_id = 'l1'");
    my $response = $web->post('/api/v1/dlq/' . (letters('queue=lost'))[0]{id} . '/replay');
    is("$response->{status} $response->{json}{success} $response->{json}{dlqRowRemoved}", '409 0 0', 'what could not be read cannot be replayed');
}

# Purge.
{
    fill('purge', map { "p$_" } 1 .. 4);
    bury('purge') for 1 .. 3;
    bury('purge', consumerGroup => 'g', subscriptionMode => 'all');
    my $purge = sub { my ($query) = @_; return $web->request('DELETE', "/api/v1/dlq$query") };
    is_error($purge->(''), 400, 'queue is required', 'a purge names a queue');
    is_error($purge->('?queue=%ff'), 400, 'queue, partition or consumerGroup is not a valid name', 'that can be one');
    is_deeply($purge->('?queue=purge&consumerGroup=g')->{json}, { success => $true, deleted => 1, queue => 'purge', consumerGroup => 'g' }, 'of one group');
    is_deeply($purge->('?queue=purge')->{json}, { success => $true, deleted => 3, queue => 'purge', consumerGroup => undef }, 'of all');
    is($purge->('?queue=purge')->{json}{deleted}, 0, 'nothing is left');
    is(scalar(() = letters('queue=lost')), 1, 'other queues keep theirs');
    $queen->sql("INSERT INTO queen.log_dlq (partition_id, consumer_group, \"offset\", error) SELECT p.id, 'g', n, 'e' FROM generate_series(1, 25000) n, queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'purge'");
    is($purge->('?queue=purge')->{json}{deleted}, 25_000, 'in steps');
}

$queen->finish;
