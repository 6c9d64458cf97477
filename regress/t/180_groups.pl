# Consumer groups by HTTP: listings, deletion, start of a subscription, seeks, and the waiting
# pops that these wake. No fallback poll and no wake worker: what wakes is the front end.
use strict;
use warnings;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('groups', conf => "synchronous_commit = off\nqueen.workers = off\n");
my $web = $queen->start_frontend(args => [qw(--poll-initial 60000 --poll-max 60000 --threads 2)]);
my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $time = qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

sub escape { return QueenTest::Frontend::escape($_[0]); }
sub path { my ($group, @rest) = @_; return join '/', '/api/v1/consumer-groups', escape($group), map { escape($_) } @rest; }
sub seek_to { my ($group, $queue, $body, $partition) = @_;    ## no critic
    return $web->post(path($group, 'queues', $queue, defined $partition ? ('partitions', $partition) : (), 'seek'), $body); }
sub remove { my ($path) = @_; return $web->request('DELETE', $path); }
sub data { return join ' ', map { $_->{data} } @_; }
sub push_to { my ($queue, $partition, @payloads) = @_;
    return $web->push(map { { queue => $queue, partition => $partition, payload => $_, transactionId => "$partition-$_" } } @payloads); }
# All that a group gets of a queue now, acknowledged.
sub drain
{
    my ($queue, $group, %options) = @_;
    return data(sort { $a->{data} cmp $b->{data} } $web->pop($queue, consumerGroup => $group, partitions => 0, autoAck => 'true', %options));
}

# Listings.
is_deeply($web->get('/api/v1/consumer-groups')->{json}, [], 'no groups');
is_deeply($web->get('/api/v1/consumer-groups/lagging')->{json}, [], 'none lags');
is_deeply($web->get(path('nobody'))->{json}, {}, 'an unknown group');
{
    push_to('shop.orders', 'a', 1 .. 4);
    push_to('shop.orders', 'b', 5);
    my @batch = $web->pop('shop.orders', partition => 'a', consumerGroup => 'billing', subscriptionMode => 'all', batch => 3);
    $web->ack('completed', $batch[0]);
    $web->pop('shop.orders', consumerGroup => 'mail', partitions => 0, subscriptionMode => 'all', autoAck => 'true');
    $web->pop('shop.orders', autoAck => 'true', partitions => 0);
    $queen->sql(q{UPDATE queen.log_segments SET created_at = created_at - interval '2 hours'});
    my $list = $web->get('/api/v1/consumer-groups')->{json};
    my %age = map { $_->{name} => delete $_->{maxTimeLag} } @$list;
    my %created = map { $_->{name} => delete $_->{subscriptionCreatedAt} } @$list;
    my $element = sub {
        my ($name, $cursors, $lagging, $lag, $state, $mode) = @_;
        return { name => $name, topics => ['shop.orders'], queueName => 'shop.orders', members => $cursors, partitionCursors => $cursors,
            partitionsWithLag => $lagging, totalLag => $lag, state => $state, storage => 'segments', subscriptionMode => $mode,
            subscriptionTimestamp => $mode && '1970-01-01T00:00:00.000Z', conflation => $false };
    };
    is_deeply($list,
        [ $element->('__QUEUE_MODE__', 2, 0, 0, 'Stable', 'all'), $element->('billing', 1, 1, 3, 'Lagging', undef),
            $element->('mail', 2, 0, 0, 'Stable', 'all') ], 'the list of groups');
    is_deeply([ @age{qw(__QUEUE_MODE__ mail)} ], [ 0, 0 ], 'no age without lag');
    cmp_ok($age{billing}, '>=', 7200, 'the age of the oldest message that is not acknowledged');
    like($created{mail}, $time, 'when the group subscribed');
    is($created{billing}, undef, 'a group that only pops by name has not');

    my $detail = $web->get(path('billing'))->{json};
    my $partition = $detail->{'shop.orders'}{partitions}[0];
    cmp_ok(delete $partition->{timeLagSeconds}, '>=', 7200, 'its age in the detail');
    is_deeply($detail,
        { 'shop.orders' => { conflation => $false, partitions => [ { partition => 'a', workerId => $batch[0]{leaseId}, lastConsumedAt => undef,
            totalConsumed => 1, offsetLag => 3, leaseActive => $true } ] } }, 'the detail of a group');

    my $lagging = $web->get('/api/v1/consumer-groups/lagging')->{json};
    is_deeply([ map { "$_->{consumer_group} $_->{partition_name} $_->{offset_lag}" } @$lagging ], ['billing a 3'], 'who lags for an hour');
    is_deeply([ sort keys %{ $lagging->[0] } ],
        [qw(consumer_group lag_hours last_consumed_at offset_lag oldest_unconsumed_at partition_id partition_name queue_name time_lag_seconds worker_id)],
        'and what is said of it');
    like($lagging->[0]{oldest_unconsumed_at}, $time, 'since when');
    is_deeply($web->get('/api/v1/consumer-groups/lagging?minLagSeconds=100000')->{json}, [], 'nobody lags that long');
    is(scalar @{ $web->get("/api/v1/consumer-groups/lagging?minLagSeconds=$_")->{json} }, 1, "minLagSeconds=$_ is the default") for '', 'x', '-1', '1e9';
    my $refreshed = $web->post('/api/v1/stats/refresh');
    is($refreshed->{status}, 200, 'the statistics are refreshed');
    is($refreshed->{json}{success}, $true, 'and it says so');
    my $connection = $web->connect;    # one thread answers all of it
    my $count = sub { $connection->send('GET', '/api/v1/resources/queues?stats=cached'); return scalar @{ $connection->receive->{json}{queues} }; };
    is($count->(), 1, 'a listing that may be repeated');
    $web->post('/api/v1/configure', { queue => 'fresh' });
    $web->post('/api/v1/stats/refresh');
    is($count->(), 2, 'is not, after a refresh');
    $web->request('DELETE', '/api/v1/resources/queues/fresh');
}

# Seeks: end, beginning, a time; partition and queue.
{
    my %common = (success => $true, consumerGroup => 'billing', queueName => 'shop.orders');
    is_deeply(seek_to('billing', 'shop.orders', { toEnd => $true })->{json},
        { %common, seekToEnd => $true, targetTimestamp => undef, partitionsUpdated => 2 }, 'to the end');
    is(drain('shop.orders', 'billing'), '', 'where there is nothing');
    is_deeply(seek_to('billing', 'shop.orders', { beginning => $true })->{json},
        { %common, seekToEnd => $false, targetTimestamp => undef, partitionsUpdated => 2 }, 'to the beginning');
    is(drain('shop.orders', 'billing'), '1 2 3 4 5', 'where everything is');
    push_to('shop.orders', 'a', 6);
    my $an_hour_ago = $queen->sql(q{SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')});
    is_deeply(seek_to('billing', 'shop.orders', { timestamp => $an_hour_ago, toEnd => $false })->{json},
        { %common, seekToEnd => $false, targetTimestamp => $an_hour_ago, partitionsUpdated => 2 }, 'to a time');
    is(drain('shop.orders', 'billing'), '6', 'what came after it');
    is_deeply(seek_to('billing', 'shop.orders', { timestamp => '2000-01-01', toEnd => undef }, 'b')->{json},
        { %common, partitionName => 'b', seekToEnd => $false, targetTimestamp => '2000-01-01', updated => $true }, 'one partition');
    is(drain('shop.orders', 'billing'), '5', 'only that one');
    for my $body ('', '{}', '{"toEnd":false}')
    {
        seek_to('billing', 'shop.orders', { beginning => $true }, 'b');
        is_deeply(seek_to('billing', 'shop.orders', $body, 'b')->{json},
            { %common, partitionName => 'b', seekToEnd => $true, targetTimestamp => undef, updated => $true }, "a partition, told '$body'");
    }
    is(drain('shop.orders', 'billing'), '', 'goes to the end');

    # A lease does not survive it, in either direction.
    my ($message) = $web->pop('shop.orders', consumerGroup => 'lease', subscriptionMode => 'all');
    seek_to('lease', 'shop.orders', { beginning => $true });
    my $ack = $web->ack('completed', $message)->[0];
    is_deeply([ @$ack{qw(success error)} ], [ $false, 'invalid or expired lease' ], 'the holder of a lease cannot acknowledge after a seek');
    is(drain('shop.orders', 'lease'), '1 2 3 4 5 6', 'all is there for the next');

    my $missing = sub {
        my ($response, $error, $name) = @_;
        is($response->{status}, 404, $name);
        is_deeply([ @{ $response->{json} }{qw(success error)} ], [ $false, $error ], 'and why');
        return $response->{json};
    };
    is($missing->(seek_to('g', 'nowhere', { toEnd => $true }), 'Queue not found', 'an unknown queue')->{partitionsUpdated}, 0, 'none updated');
    is($missing->(seek_to('g', 'nowhere', '', 'p'), 'Partition not found', 'a partition of an unknown queue')->{updated}, $false, 'not updated');
    $missing->(seek_to('g', 'shop.orders', '', 'p'), 'Partition not found', 'an unknown partition');
    $web->post('/api/v1/configure', { queue => 'bare' });
    $missing->(seek_to('g', 'bare', { toEnd => $true }), 'Queue has no partitions: not found', 'a queue without partitions');

    my $refused = sub { my ($body, $error) = @_; is_error(seek_to('g', 'shop.orders', $body), 400, $error, "refused: $body"); };
    $refused->($_, 'toEnd, beginning or timestamp is required, and only one')
      for '', '{}', '{"toEnd":false,"timestamp":null}', '{"toEnd":true,"beginning":true}', '{"beginning":true,"timestamp":"2026-01-01"}';
    $refused->('{"timestamp":"yesterday"}', 'timestamp is not an ISO 8601 time');
    $refused->('{"timestamp":5}', 'timestamp must be a string');
    $refused->('{"timestamp":""}', 'timestamp is not an ISO 8601 time');
    $refused->('{"toEnd":"true"}', 'toEnd must be true or false');
    for my $body ('{', '[]', '"x"', '{"toEnd":true} x', "{\"timestamp\":\"\xff\"}", '{"timestamp":"\ud800"}')
    {
        my $response = seek_to('g', 'shop.orders', $body);
        is($response->{status}, 400, "refused: $body");
        like($response->{json}{error}, qr/^bad body: /, 'with the reason');
    }
    is_error($web->post('/api/v1/consumer-groups/%00/queues/q/seek', '{"toEnd":true}'), 400, 'consumerGroup holds a control character', 'a bad group');
    is_error($web->post('/api/v1/consumer-groups//queues/q/seek', '{"toEnd":true}'), 400, 'consumerGroup is empty', 'no group');
    is_error($web->post('/api/v1/consumer-groups/g/queues/%ff/seek', '{"toEnd":true}'), 400, 'queue is not valid UTF-8', 'a bad queue');
    is_error($web->post('/api/v1/consumer-groups/g/queues/q/partitions/' . 'x' x 256 . '/seek', ''), 400, 'partition is longer than 255 characters', 'a bad partition');
    is($queen->sql(q{SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'g'}), 0, 'nothing of it left a trace');
}

# More partitions than one step takes: all are moved, and all are deleted.
{
    $queen->sql(q{SELECT queen.log_provision(array_agg(t), array_agg('wide'::text), array_agg('p' || i))
                    FROM generate_series(1, 2500) AS i, (VALUES ('00000000-0000-0000-0000-000000000001'::uuid)) AS v (t)});
    is(seek_to('g', 'wide', { beginning => $true })->{json}{partitionsUpdated}, 2500, 'a seek in steps');
    is($queen->sql(q{SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'g'}), 2500, 'moves all cursors');
    is_deeply(remove(path('g'))->{json}, { success => $true, consumerGroup => 'g', deletedPartitions => 2500, metadataDeleted => $true }, 'a deletion in steps');
    is($queen->sql(q{SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'g'}), 0, 'deletes all');
}

# Deletion, with and without the subscription. Names in the path are decoded.
{
    my ($group, $queue) = ("gr/\x{e9}p %", "que/ue\x{1f422}");
    push_to($queue, 'a', 1);
    is(drain($queue, $group, subscriptionMode => 'new'), '', 'a group that wants what is new');
    push_to($queue, 'a', 2);
    is(drain($queue, $group), '2', 'gets it');
    is_deeply(remove(path($group, 'queues', $queue) . '?deleteMetadata=false')->{json},
        { success => $true, consumerGroup => $group, queueName => $queue, deletedPartitions => 1, metadataDeleted => $false }, 'the cursors are deleted');
    is(drain($queue, $group, subscriptionMode => 'all'), '2', 'V-33: the subscription says where it starts again');
    for my $off ('0', 'no', 'false') { is(remove(path($group) . "?deleteMetadata=$off")->{json}{metadataDeleted}, $false, "deleteMetadata=$off"); }
    for my $on ('', '?deleteMetadata=1', '?deleteMetadata=yes', '?deleteMetadata=maybe')
    {
        is_deeply(remove(path($group, 'queues', $queue) . $on)->{json},
            { success => $true, consumerGroup => $group, queueName => $queue, deletedPartitions => $on eq '' ? 0 : 1, metadataDeleted => $true }, "with the subscription: '$on'");
        is(drain($queue, $group, subscriptionMode => 'all'), '1 2', 'it starts anew');
    }
    my ($message) = $web->pop($queue, consumerGroup => 'leased', subscriptionMode => 'all');
    is(remove(path('leased'))->{json}{deletedPartitions}, 1, 'a group with a lease');
    is($web->ack('completed', $message)->[0]{error}, 'consumer not found', 'the lease went with it');
    is_deeply(remove(path($_))->{json}, { success => $true, consumerGroup => $_, deletedPartitions => 0, metadataDeleted => $true }, "unknown: $_") for 'nobody', 'lagging';
    is(remove(path('nobody', 'queues', 'nowhere'))->{status}, 200, 'of an unknown queue');
    is(remove(path('__QUEUE_MODE__', 'queues', 'shop.orders'))->{json}{deletedPartitions}, 2, 'queue mode is a group, too');
    is(data(sort { $a->{data} cmp $b->{data} } $web->pop('shop.orders', partitions => 0, autoAck => 'true')), '1 2 3 4 5 6', 'and starts anew');
    is_error(remove('/api/v1/consumer-groups/a%0Ab'), 400, 'consumerGroup holds a control character', 'a bad group');
    is_error(remove(path('x' x 256)), 400, 'consumerGroup is longer than 255 characters', 'a long one');
    is_error(remove('/api/v1/consumer-groups/g/queues/%01'), 400, 'queue holds a control character', 'a bad queue');
}

# The start of a subscription.
{
    $web->pop('start', consumerGroup => 'starter', subscriptionMode => 'new');
    push_to('start', 'old', 1);
    my $move = sub { return $web->post(path('starter', 'subscription'), $_[0]); };
    is_deeply($move->({ subscriptionTimestamp => '2999-01-01T00:00:00Z' })->{json},
        { success => $true, consumerGroup => 'starter', newTimestamp => '2999-01-01T00:00:00.000Z', rowsUpdated => 1 }, 'moved to the future');
    is(drain('start', 'starter'), '', 'nothing is new enough');
    push_to('start', 'other', 2);
    $move->({ subscriptionTimestamp => '2000-01-01T00:00:00+02:00' });
    is(drain('start', 'starter'), '2', 'partitions that it has not met start there; the cursor that exists stays');
    is($web->get('/api/v1/consumer-groups')->{json}[-1]{subscriptionMode}, 'timestamp', 'the list says so');
    is($web->post(path('nobody', 'subscription'), { subscriptionTimestamp => '2026-01-01' })->{json}{rowsUpdated}, 0, 'an unknown group');
    is_error($move->($_), 400, 'subscriptionTimestamp is required', "refused: $_") for '{}', '{"subscriptionTimestamp":null}';
    is_error($move->('{"subscriptionTimestamp":"x"}'), 400, 'subscriptionTimestamp is not an ISO 8601 time', 'no time');
    is_error($move->('{"subscriptionTimestamp":7}'), 400, 'subscriptionTimestamp must be a string', 'a number');
    like($move->($_)->{json}{error}, qr/^bad body: /, "refused: '$_'") for '', '[', 'null';
}

# Waiting pops are woken by a seek and by a deletion.
{
    my $parked = sub { return $web->get('/metrics')->{json}{queen}{parkedPops}; };
    my $park = sub {
        my ($path) = @_;
        my ($connection, $before) = ($web->connect, $parked->());
        $connection->send('GET', "/api/v1/pop/queue/$path&wait=true&timeout=50000&autoAck=true&partitions=0");
        wait_until(sub { $parked->() == $before + 1 }, "$path is parked");
        return $connection;
    };
    push_to('wake', 'p', 'x');
    drain('wake', $_, subscriptionMode => 'all') for qw(any named gone);
    my @polls = map { $park->($_) } 'wake?consumerGroup=any', 'wake/partition/p?consumerGroup=named', 'wake?subscriptionMode=all&consumerGroup=gone';
    seek_to($_, 'wake', { beginning => $true }) for qw(any named);
    is(data(@{ $polls[$_]->receive->{json}{messages} }), 'x', "poll $_ is woken by the seek") for 0, 1;
    remove(path('gone'));
    is(data(@{ $polls[2]->receive->{json}{messages} }), 'x', 'by the deletion');
}

# What this server does not offer: a client that asks for it is told by what is missing.
{
    push_to('plain', 'p', 1 .. 3);
    for my $query ('conflation=true&consumerGroup=conf&subscriptionMode=all', 'autopilot=true&consumerGroup=auto&subscriptionMode=all', 'conflation=true&autoAck=true')
    {
        my $response = $web->get("/api/v1/pop/queue/plain?$query");
        is(data(@{ $response->{json}{messages} }), '1 2 3', "$query delivers as without");
        is_deeply([ grep { exists $response->{json}{$_} } qw(conflation conflationConflict autopilot) ], [], 'and claims nothing');
    }
    is($web->get('/api/v1/pop/queue/plain?conflation=true&consumerGroup=conf')->{status}, 204, 'nothing is 204');
}

# Locks: a seek that cannot have a cursor in time says so, and moves nothing.
{
    my $short = $queen->start_frontend(args => [qw(--lock-timeout 100)]);
    my $session = $queen->node->background_psql('postgres');
    $session->query_safe(q{BEGIN; SELECT count(*) FROM (SELECT FROM queen.log_consumers WHERE consumer_group = 'any' FOR UPDATE) AS c});
    my $response = $short->post(path('any', 'queues', 'wake', 'seek'), { beginning => $true });
    is($response->{status}, 503, 'a held cursor');
    ok($response->{headers}{'retry-after'} && $response->{json}{error}, 'why, and to try again');
    $session->query_safe('COMMIT');
    $session->quit;
    is(drain('wake', 'any'), '', 'nothing was moved');
    is($short->post(path('any', 'queues', 'wake', 'seek'), { beginning => $true })->{status}, 200, 'when it is free');
    is(drain('wake', 'any'), 'x', 'it is moved');
}

$queen->finish;
