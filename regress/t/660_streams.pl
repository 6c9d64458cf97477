# Streams: queries, state and cycles over HTTP, and that a cycle takes effect exactly once, whoever dies.
use strict;
use warnings;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until raw_payloads);
use Test::More;

my $queen = QueenTest->new('streams');
my $web = $queen->start_frontend(env => { QUEEN_ENCRYPTION_KEY => 'a' x 64 });
my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $uuid = qr/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
my $nobody = '00000000-0000-4000-8000-000000000000';

sub query { my (%body) = @_; return $web->post('/streams/v1/queries', { name => 'totals', source_queue => 'orders', config_hash => 'h1', %body }); }
sub state { my (%body) = @_; return $web->post('/streams/v1/state/get', \%body); }
sub cycle { my (%body) = @_; return $web->post('/streams/v1/cycle', \%body); }
sub fails
{
    my ($response, $status, $error, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is_deeply([ $response->{status}, $response->{json} ], [ $status, { success => $false, error => $error } ], $name);
    return;
}
sub push_to { my ($queue, @ids) = @_; return $web->post('/api/v1/push', { items => [ map { { queue => $queue, partition => 'p', transactionId => $_, payload => { id => $_ } } } @ids ] }); }
sub pop_source { my ($batch) = @_; return $web->get("/api/v1/pop/queue/orders?consumerGroup=streams.totals&subscriptionMode=all&batch=$batch")->{json}; }
sub rows { my ($response) = @_; return join ' ', map { "$_->{key}=" . JSON::PP->new->canonical->allow_nonref->encode($_->{value}) } @{ $response->{json}{rows} }; }

# Queries.
my $id;
{
    my $response = query(sink_queue => 'sums');
    $id = $response->{json}{query_id};
    like($id, $uuid, 'a query has an id');
    is_deeply($response->{json}, { success => $true, query_id => $id, name => 'totals', config_hash => 'h1', fresh => $true, reset => $false }, 'a new query');
    is_deeply(query()->{json}, { success => $true, query_id => $id, name => 'totals', config_hash => 'h1', fresh => $false, reset => $false }, 'a known one');
    my $mismatch = query(config_hash => 'h2');
    is($mismatch->{status}, 409, 'another configuration');
    like($mismatch->{json}{error}, qr/config_hash mismatch/, 'is named as such');
    is(query(config_hash => 'h2', reset => $true)->{json}{reset}, $true, 'a reset');
    is(query(config_hash => 'h2', reset => $true)->{json}{reset}, $false, 'once');
    for my $field (qw(name source_queue config_hash))
    {
        fails(query($field => undef), 400, "$field is required", "without $field");
        fails(query($field => 7), 400, "$field must be a string", "$field of another type");
        fails(query($field => 'x' x 256), 400, "$field is longer than 255 characters", "$field too long");
    }
    fails(query(reset => 'yes'), 400, 'reset must be true or false', 'a reset that is none');
    is($web->post('/streams/v1/queries', '{')->{status}, 400, 'no JSON');
}

push_to('orders', map { "o$_" } 1 .. 6);
my $batch = pop_source(3);
my $partition = $batch->{partitionId};
my %cycle = (query_id => $id, partition_id => $partition, consumer_group => 'streams.totals');

# A cycle with everything.
{
    my $response = cycle(%cycle,
        state_ops => [ { type => 'upsert', key => 'w:1', value => { acc => { n => 3 }, windowEnd => 1778490000000 } }, { type => 'upsert', key => "\x{1F600}", value => undef }, { type => 'delete', key => 'w:0' } ],
        push_items => [ { queue => 'sums', partition => 'cust-17', payload => { n => 3 } }, { queue => 'sums', partition => 'cust-17', data => [1], transactionId => 's1' }, { queue => 'other', payload => 1 } ],
        ack => { transactionId => 'o3', leaseId => $batch->{leaseId}, status => 'completed', count => 3 }, release_lease => $true);
    my $answer = $response->{json};
    like(delete $_->{messageId}, $uuid, 'a result has an id') for @{ $answer->{push_results} };
    like(delete $answer->{push_results}[$_]{transactionId}, $uuid, 'which is its transaction id') for 0, 2;
    is_deeply(
        $answer,
        {
            success => $true, query_id => $id, partition_id => $partition, queueName => 'orders', state_ops_applied => 3,
            push_results => [
                { queue => 'sums', partition => 'cust-17', status => 'queued', baseOffset => 0 },
                { queue => 'sums', partition => 'cust-17', transactionId => 's1', status => 'queued', baseOffset => 0 },
                { queue => 'other', partition => 'Default', status => 'queued', baseOffset => 0 } ],
            ack_result => { success => $true, count => 3, lease_released => $true, dlq => $false }
        },
        'a cycle');
    is_deeply([ raw_payloads($web->get('/api/v1/pop/queue/sums?autoAck=true&batch=9')->{body}) ], [ '{"n":3}', '[1]' ], 'its results are there');
    is(rows(state(query_id => $id, partition_id => $partition, keys => [])), qq(w:1={"acc":{"n":3},"windowEnd":1778490000000} \x{1F600}=null), 'and its state');
    is(rows(state(query_id => $id, partition_id => $partition, keys => [ 'w:1', 'none' ])), 'w:1={"acc":{"n":3},"windowEnd":1778490000000}', 'by key');
    is(rows(state(query_id => $id, partition_id => $partition, key_prefix => 'w:', ripe_at_or_before => 1778490000000)), 'w:1={"acc":{"n":3},"windowEnd":1778490000000}', 'by prefix and ripeness');
    is(rows(state(query_id => $id, partition_id => $partition, ripe_at_or_before => 1778489999999)), '', 'not ripe yet');
    like(state(query_id => $id, partition_id => $partition)->{json}{rows}[0]{updated_at}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'with its time');
}

# Repeated, or under a lease that is over, it does nothing.
{
    fails(cycle(%cycle, state_ops => [ { type => 'delete', key => 'w:1' } ], push_items => [ { queue => 'sums', payload => 'twice' } ], ack => { transactionId => 'o3', leaseId => $batch->{leaseId}, status => 'completed' }),
        200, 'invalid or expired lease', 'a repeated cycle');
    $batch = pop_source(2);
    fails(cycle(%cycle, push_items => [ { queue => 'sums', payload => 'twice' } ], ack => { transactionId => 'o5', leaseId => $nobody, status => 'completed' }), 200, 'invalid or expired lease', 'a foreign lease');
    fails(cycle(%cycle, ack => { transactionId => 'o5', status => 'completed' }), 200, 'invalid or expired lease', 'no lease');
    fails(cycle(%cycle, ack => { transactionId => 'x', leaseId => $batch->{leaseId}, status => 'completed' }), 200, 'unresolved transaction id', 'a message that is not there');
    fails(cycle(%cycle, ack => { leaseId => $batch->{leaseId}, status => 'completed' }), 200, 'unresolved transaction id', 'no message');
    is($web->get('/api/v1/pop/queue/sums?autoAck=true')->{status}, 204, 'none of them pushed anything');
    like(rows(state(query_id => $id, partition_id => $partition)), qr/^w:1=/, 'or touched the state');
}

# A part of the batch; the rest comes again. A negative status gives it back.
{
    my $answer = cycle(%cycle, ack => { transactionId => 'o4', leaseId => $batch->{leaseId}, status => 'completed', count => 1 }, release_lease => $false)->{json};
    is_deeply($answer->{ack_result}, { success => $true, count => 1, lease_released => $false, dlq => $false }, 'a part');
    fails(cycle(%cycle, push_items => [ { queue => 'sums', payload => 'twice' } ], ack => { transactionId => 'o4', leaseId => $batch->{leaseId}, status => 'completed' }, release_lease => $false), 200, 'already committed', 'is not counted twice');
    $answer = cycle(%cycle, ack => { transactionId => 'o5', leaseId => $batch->{leaseId}, status => 'failed' })->{json};
    is($answer->{ack_result}{lease_released}, $true, 'given back');
    is(join(' ', map { $_->{transactionId} } @{ pop_source(9)->{messages} }), 'o5 o6', 'comes again');
    is($queen->sql(q{SELECT sum(batch_retry_count) FROM queen.log_consumers}), 0, 'and charged nothing');
    $queen->sql(q{UPDATE queen.log_consumers SET lease_expires_at = now() - interval '1 second' WHERE consumer_group = 'streams.totals'; SELECT queen.stat_doubt(p.queue_id) FROM queen.log_partitions AS p});
}

# Without an acknowledgement: a flush. Duplicates among the results are left out, the others stored.
{
    my $answer = cycle(%cycle, push_items => [ map { { queue => 'sums', partition => 'cust-17', transactionId => $_, payload => $_ } } qw(s1 s2 s2 s3) ], ack => undef)->{json};
    is_deeply([ map { $_->{status} } @{ $answer->{push_results} } ], [qw(duplicate queued duplicate queued)], 'duplicates are left out');
    is($answer->{ack_result}, undef, 'nothing was acknowledged');
    is(scalar @{ $web->get('/api/v1/pop/queue/sums?autoAck=true&batch=9')->{json}{messages} }, 2, 'the rest is stored');
    $web->post('/api/v1/configure', { queue => 'secret', options => { encryptionEnabled => $true } });
    is(cycle(%cycle, push_items => [ { queue => 'secret', payload => 'x' } ])->{json}{push_results}[0]{status}, 'queued', 'into an encrypted queue');
    is($queen->sql(q{SELECT (queen.log_frame(s.blob, 0)).flags FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'secret'}), 4, 'encrypted');
    my $parked = $web->connect;
    $parked->send('GET', '/api/v1/pop/queue/woken?wait=true&timeout=60000');
    wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} > 0 }, 'a pop is parked');
    cycle(%cycle, push_items => [ { queue => 'woken', payload => 1 } ]);
    is($parked->receive->{status}, 200, 'a result wakes who waits for it');
    is(cycle(%cycle)->{json}{success}, $true, 'a cycle of nothing');
}

# Bad input.
{
    for my $field (qw(query_id partition_id))
    {
        fails(cycle(%cycle, $field => undef), 400, "$field is required and must be a UUID", "a cycle without $field");
        fails(cycle(%cycle, $field => 'x'), 400, "$field is required and must be a UUID", 'or a bad one');
        fails(state(query_id => $id, partition_id => $partition, $field => undef), 400, "$field is required and must be a UUID", "state without $field");
    }
    fails(cycle(%cycle, query_id => $nobody), 200, 'unknown query_id', 'an unknown query');
    fails(cycle(%cycle, partition_id => $nobody), 200, 'unknown partition_id', 'an unknown partition');
    fails(state(query_id => $nobody, partition_id => $partition), 400, 'unknown query_id', 'state of an unknown query');
    fails(state(query_id => $id, partition_id => $partition, ripe_at_or_before => 'x'), 400, 'ripe_at_or_before must be a number', 'a time that is none');
    fails(state(query_id => $id, partition_id => $partition, keys => [1]), 400, 'keys[0].key must be a string', 'a key that is none');
    fails(state(query_id => $id, partition_id => $partition, keys => ["a\0"]), 400, 'keys[0].key holds the character U+0000', 'a key with U+0000');
    fails(cycle(%cycle, state_ops => [ { type => 'merge', key => 'k' } ]), 400, 'state_ops[0].type must be upsert or delete', 'an unknown operation');
    fails(cycle(%cycle, state_ops => [ { type => 'upsert', value => 1 } ]), 400, 'state_ops[0].key is required', 'without a key');
    fails(cycle(%cycle, state_ops => [ { type => 'upsert', key => 'k' } ]), 400, 'state_ops[0].value is required', 'without a value');
    fails(cycle(%cycle, state_ops => [ { type => 'upsert', key => "\0", value => 1 } ]), 400, 'state_ops[0].key holds the character U+0000', 'U+0000');
    fails(cycle(%cycle, push_items => [ {} ]), 400, 'push_items[0].queue is required', 'a result without a queue');
    fails(cycle(%cycle, push_items => [ { queue => 'q', payload => 1, messageId => 'x' } ]), 400, 'push_items[0].messageId is not a UUID', 'a bad id');
    fails(cycle(%cycle, consumer_group => "\x01"), 400, 'consumer_group holds a control character', 'a bad group');
    is($web->post('/streams/v1/cycle', '[]')->{status}, 400, 'no object');
    is(cycle(%cycle, state_ops => [ { type => 'upsert', key => 'k' x 10_000, value => "\0" } ])->{json}{success}, $true, 'a long key, and a value that jsonb refuses');
    is($web->post('/streams/v1/cycle', qq({"query_id":"$id","partition_id":"$partition","state_ops":[{"type":"upsert","key":"inf","value":{"windowEnd":1e999}}]}))->{json}{success}, $true, 'an end of a window that is no finite number');
}

# Exactly once. Workers count messages per key, and emit each count; workers, front end and backends die on the way.
{
    my $second = $queen->start_frontend;
    my $n = 400;
    $web->post('/api/v1/push', { items => [ map { { queue => 'events', partition => 'p' . $_ % 4, payload => { n => $_ } } } 1 .. $n ] });
    my $query = $web->post('/streams/v1/queries', { name => 'count', source_queue => 'events', config_hash => 'c' })->{json}{query_id};
    my $step = sub {
        my ($server) = @_;
        my $popped = $server->get('/api/v1/pop/queue/events?consumerGroup=streams.count&subscriptionMode=all&batch=7&leaseSeconds=1');
        return $popped->{status} unless $popped->{status} == 200;
        my $batch = $popped->{json};
        my $before = $server->post('/streams/v1/state/get', { query_id => $query, partition_id => $batch->{partitionId}, keys => ['sum'] });
        return 0 unless $before->{status} == 200;
        my $sum = @{ $before->{json}{rows} } ? $before->{json}{rows}[0]{value} : 0;
        my @messages = @{ $batch->{messages} };
        $sum += $_->{data}{n} for @messages;
        $server->post('/streams/v1/cycle', {
                query_id => $query, partition_id => $batch->{partitionId}, consumer_group => 'streams.count',
                state_ops => [ { type => 'upsert', key => 'sum', value => $sum } ],
                push_items => [ map { { queue => 'echo', partition => $batch->{partition}, payload => $_->{data} } } @messages ],
                ack => { transactionId => $messages[-1]{transactionId}, leaseId => $batch->{leaseId}, status => 'completed' }, release_lease => $true });
        return 200;
    };
    my $deaths = 0;
    my $steps = 0;
    for my $round (1 .. 500)
    {
        my $server = $round % 2 ? $web : $second;
        if ($round % 15 == 7)
        {
            # Dies somewhere in the middle of what it is doing for us.
            my $child = fork() // die "fork: $!";
            if ($child == 0) { eval { $step->($server) }; POSIX::_exit(0); }
            select undef, undef, undef, 0.001 * ($round % 5);
            if ($round % 2) { $queen->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'queen_web' AND state = 'active'}); }
            else { kill 'KILL', $second->pid; wait_until(sub { !$second->running }, 'it is gone'); $second->start; $second->wait_healthy; }
            waitpid $child, 0;
            $deaths++;
        }
        my $status = eval { $step->($server) } // 0;
        $steps += $status == 200;
        last if $status == 204 && $queen->sql(q{SELECT coalesce(sum(p.last_offset - coalesce(c.committed, -1)), 0) FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id LEFT JOIN queen.log_consumers AS c ON c.partition_id = p.id AND c.consumer_group = 'streams.count' WHERE q.name = 'events'}) == 0;
        select undef, undef, undef, 0.1 if $status != 200;
    }
    cmp_ok($deaths, '>', 2, "somebody died $deaths times in $steps steps");
    is($queen->sql(q{SELECT sum(s.value::int) FROM queen.stream_state AS s JOIN queen.stream_queries AS q ON q.id = s.query_id WHERE q.name = 'count'}), $n * ($n + 1) / 2, 'every message was counted once');
    my @echoed = map { @$_ } map { my $r = $web->get("/api/v1/pop/queue/echo/partition/p$_?autoAck=true&batch=1000"); [ map { $_->{data}{n} } @{ $r->{json}{messages} } ] } 0 .. 3;
    is(join(' ', @echoed), join(' ', map { my $p = $_; grep { $_ % 4 == $p } 1 .. $n } 0 .. 3), 'and emitted once, in order');
}
$queen->finish;
