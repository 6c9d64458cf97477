# Queues by HTTP: configure, list, show, delete. Health, status and metrics. What is no route.
use strict;
use warnings;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('admin', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;
my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $uuid = qr/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
my $time = qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

sub configure { my ($body) = @_; return $web->post('/api/v1/configure', $body); }
sub options { my (%options) = @_; return configure({ queue => 'q', options => \%options })->{json}{options}; }
sub show { my ($queue) = @_; return $web->get('/api/v1/resources/queues/' . QueenTest::Frontend::escape($queue)); }
sub delete_queue { my ($queue) = @_; return $web->request('DELETE', '/api/v1/resources/queues/' . QueenTest::Frontend::escape($queue)); }

my %defaults = (
    leaseTime => 300, retryLimit => 3, retryDelay => 1000, priority => 0, maxSize => 0, ttl => 3600,
    deadLetterQueue => $true, dlqAfterMaxRetries => $true, delayedProcessing => 0, windowBuffer => 0,
    minPopWaitTime => 0, retentionEnabled => $false, retentionSeconds => 0, completedRetentionSeconds => 0,
    maxWaitTimeSeconds => 0, encryptionEnabled => $false, dedupWindowSeconds => 3600);
my %others = (
    leaseTime => 120, retryLimit => 5, retryDelay => 50, priority => -7, maxSize => 1000, ttl => 60,
    deadLetterQueue => $false, dlqAfterMaxRetries => $false, delayedProcessing => 1, windowBuffer => 2,
    minPopWaitTime => 300, retentionEnabled => $true, retentionSeconds => 86400, completedRetentionSeconds => 3600,
    maxWaitTimeSeconds => 9000, encryptionEnabled => $false, dedupWindowSeconds => 0);

# configure.
{
    my $response = configure({ queue => 'q' });
    is($response->{status}, 200, 'configure');
    my $answer = $response->{json};
    like($answer->{queueId}, $uuid, 'names the queue by its id');
    is_deeply(
        $answer,
        {
            configured => $true, queueId => $answer->{queueId}, partitionId => undef, queue => 'q',
            namespace => '', task => '', storage => 'segments', options => \%defaults
        },
        'its fields, and every option');
    is_deeply(options(%others), \%others, 'options come back with the values that were set');
    like(configure({ queue => 'q', options => \%others })->{body}, qr/"leaseTime": *120\b/, 'and of their type');
    is_deeply(options(), \%others, 'what is not named is kept');
    is_deeply(options(leaseTime => 121), { %others, leaseTime => 121 }, 'one option');
    is_deeply(options(leaseTime => undef), { %others, leaseTime => 300 }, 'null resets one');
    is_deeply(configure({ queue => 'q', ttl => 61, options => { priority => 1 } })->{json}{options},
        { %others, leaseTime => 300, ttl => 61, priority => 1 }, 'options may stand at the top level');
    is(configure({ queue => 'q', ttl => 62, options => { ttl => 63 } })->{json}{options}{ttl}, 63, 'those in "options" win');
    is_deeply(configure({ queue => 'q', mode => 'merge', options => undef })->{json}{options}{ttl}, 63, 'no options at all');
    is_deeply(configure({ queue => 'q', mode => 'replace', options => { ttl => 64 } })->{json}{options},
        { %defaults, ttl => 64 }, 'replace resets what is not named');
    is_deeply(options(unheardOf => [1], ttl => 3600), \%defaults, 'unknown options do not matter');
    is($queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = 'q'}), 1, 'it is one queue all the time');

    my $labels = sub { my $answer = configure(@_)->{json}; return "$answer->{namespace}/$answer->{task}" };
    is($labels->({ queue => 'a.b.c' }), '/', 'namespace and task do not come from the name');
    is($labels->({ queue => 'a.b.c', namespace => 'n', task => 't' }), 'n/t', 'they are set');
    is($labels->({ queue => 'a.b.c', namespace => undef }), 'n/t', 'and kept');
    is($labels->({ queue => 'a.b.c', task => '' }), 'n/', 'and emptied');
    is($labels->({ queue => 'a.b.c', mode => 'replace' }), '/', 'or replaced');
    is(configure({ queue => '' })->{status}, 200, 'a queue may be called nothing');

    is(options(minPopWaitTime => 60001)->{minPopWaitTime}, 60000, 'minPopWaitTime has a most');
    is(options(minPopWaitTime => -1)->{minPopWaitTime}, 0, 'and a least');
    is(options(dedupWindowSeconds => -1)->{dedupWindowSeconds}, 0, 'dedupWindowSeconds has a least');
    is(options(leaseTime => 86400)->{leaseTime}, 86400, 'a day is the longest lease');
    $web->push({ queue => 'implicit', payload => 1 });
    is(configure({ queue => 'implicit', options => { ttl => 5 } })->{json}{options}{leaseTime}, 60,
        'a queue that a push made keeps its lease time');
}

# What configure refuses, and does not do half.
{
    options(ttl => 1);
    for my $option (sort keys %defaults)
    {
        my $type = ref $defaults{$option} ? 'boolean' : 'number';
        for my $value ($type eq 'number' ? ('5', $true, [], {}) : ('true', 1, [], {}))
        {
            is_error(configure({ queue => 'q', options => { ttl => 2, $option => $value } }), 400, "$option must be a $type",
                "$option: " . JSON::PP->new->allow_nonref->encode($value), invalid => $option);
        }
    }
    my $range = sub {
        my ($option, $value, $low, $high) = @_;
        is_error(configure(qq({"queue":"q","$option":$value})), 400, "$option must be a whole number between $low and $high",
            "$option: $value", invalid => $option);
    };
    $range->('leaseTime', $_, 1, 86400) for 0, 86401, -1, 1.5, 1e30;
    $range->('retryLimit', $_, 0, 2147483647) for -1, 2147483648, 0.5;
    $range->('priority', -2147483649, -2147483648, 2147483647);
    is_error(configure({ queue => 'q', options => { encryptionEnabled => $true } }), 400,
        'this server has no encryption key', 'encryption without a key', invalid => 'encryptionEnabled');
    is(show('q')->{json}{options}{ttl}, 1, 'a refused change changes nothing');

    my $refused = sub { my ($body, $error, $name) = @_; is_error(configure($body), 400, $error, $name) };
    $refused->({}, 'queue is required', 'no queue');
    $refused->({ queue => $_ }, 'queue is required', 'a queue that is no text') for undef, 5, ['q'];
    $refused->({ queue => 'x' x 256 }, 'queue is longer than 255 characters', 'a long name');
    $refused->({ queue => "a\n" }, 'queue holds a control character', 'a control character');
    $refused->({ queue => 'q', namespace => 5 }, 'namespace must be a string or null', 'a number as namespace');
    $refused->({ queue => 'q', task => 'x' x 256 }, 'task is longer than 255 characters', 'a long task');
    $refused->({ queue => 'q', options => $_ }, 'options must be an object', 'options of another kind') for [], 'x', 5;
    $refused->([], 'bad body: an object was expected', 'an array');
    is(configure({ queue => 'q', mode => $_ })->{status}, 400, 'an unknown mode') for 'Merge', '', 5;
    for my $body ('', '{', '{"queue":"q"} x', '{"queue":"q","queue":"q"}', "{\"queue\":\"\xff\"}", '{"queue":"\ud800"}',
        '{"queue":"a\u0000"}', '{"queue":"q","note":"\u0000"}')
    {
        my $response = configure($body);
        is($response->{status}, 400, "refused: $body");
        like($response->{json}{error}, qr/^bad body: /, 'with the reason');
    }
}

# Listings.
{
    $web->push(map { { queue => 'list', partition => $_ % 2 ? 'odd' : 'even', payload => $_, transactionId => "t$_" } } 1 .. 7);
    configure({ queue => 'list', namespace => 'n', task => 't' });
    my ($message) = $web->pop('list', partition => 'odd', batch => 3);
    $web->pop('list', partition => 'even', autoAck => 'true', batch => 1);
    $web->ack('completed', $message);
    my $list = $web->get('/api/v1/resources/queues?limit=1&namespace=x&stats=cached')->{json}{queues};
    my ($queue) = grep { $_->{name} eq 'list' } @$list;
    ok(@$list > 2, 'paging and filters are ignored');
    like($queue->{createdAt}, $time, 'a time in milliseconds');
    ok($queue->{retainedBytes} > 0, 'bytes');
    is_deeply(
        $queue,
        {
            id => $queue->{id}, name => 'list', namespace => 'n', task => 't', createdAt => $queue->{createdAt}, partitions => 2,
            retainedBytes => $queue->{retainedBytes}, segments => { segments => 2, messages => 7 },
            messages => { total => 7, pending => 5, processing => 2 }
        },
        'a queue in the list');
    my $shown = show('list')->{json};
    my ($even, $odd) = @{ $shown->{partitions} };
    is_deeply($shown->{options}, { %defaults, leaseTime => 60 }, 'one queue: its options');
    is_deeply($odd->{stats}, { total => 4, pending => 3, processing => 2, completed => 1, failed => undef, deadLetter => 0 },
        'a partition: its counters');
    is_deeply($shown->{totals}, { total => 7, pending => 5, processing => 2, completed => 2, failed => undef, deadLetter => 0 },
        'their sum');
    is_deeply([ sort keys %$odd ], [ sort qw(id name createdAt stats oldestMessage newestMessage) ], 'the fields of a partition');
    is_deeply([ sort keys %$shown ],
        [ sort qw(id name namespace task createdAt options partitions totals retainedBytes segments) ], 'and of the queue');
    like($_, $time, 'times') for @$odd{qw(createdAt oldestMessage newestMessage)};
    is("$even->{name} $odd->{name}", 'even odd', 'partitions by name');
    is($odd->{id}, $message->{partitionId}, 'with the id that consumers see');
    is_error(show('nothing'), 404, 'Queue not found', 'a queue that does not exist');
    is_error($web->get('/api/v1/resources/queues/%ff'), 400, 'queue is not valid UTF-8', 'nor could');
    is(show('')->{status}, 200, 'the queue without a name has a path, too');
}

# Deletion.
{
    my $name = "del/\x{e9}";
    my $item = { queue => $name, payload => 1, transactionId => 'x' };
    my $first = $web->push($item)->[0];
    $web->pop($name, consumerGroup => 'g', subscriptionMode => 'all');
    my $id = $queen->sql(q{SELECT id FROM queen.queues WHERE name LIKE 'del/%'});
    my $response = delete_queue($name);
    is($response->{status}, 200, 'a queue is deleted');
    is_deeply($response->{json}, { deleted => $true, queue => $name, existed => $true }, 'and the answer says so');
    $response = delete_queue($name);
    is($response->{status}, 200, 'a second time');
    my $text = delete $response->{json}{message};
    is_deeply($response->{json}, { deleted => $false, queue => $name, existed => $false }, 'there is none');
    is($text, 'no such queue', 'and it is explained');
    is(show($name)->{status}, 404, 'it is gone from the listings');
    my $again = $web->push($item)->[0];
    is($again->{status}, 'queued', 'its name is free, and its transaction ids are forgotten');
    isnt($again->{message_id}, $first->{message_id}, 'it is another message');
    is(join(' ', map { $_->{id} } $web->pop($name, consumerGroup => 'g', subscriptionMode => 'all')), $again->{message_id},
        'its groups start anew');
    wait_until(sub { $queen->sql("SELECT count(*) FROM queen.queues WHERE id = '$id'") eq '0' }, 'the deleted queue is drained');
    is($queen->sql('SELECT count(*) FROM queen.log_segments s WHERE NOT EXISTS
        (SELECT FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE p.id = s.partition_id)'),
        0, 'with its data');
    is_error($web->request('DELETE', '/api/v1/resources/queues/%00'), 400, 'queue holds a control character', 'no such name');
    $queen->sql(q{INSERT INTO queen.queues (name, deleted_at) VALUES (E'\x1Fleft', now())});
    $queen->start_frontend;
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = E'\x1Fleft'}) eq '0' },
        'what a restart left half done is finished');
    pass('a deletion survives a restart');
}

# Health, status, metrics.
{
    my $response = $web->get('/health');
    is($response->{status}, 200, 'healthy');
    is_deeply($response->{json},
        { status => 'healthy', database => 'connected', engine => 'segments-postgresql',
            version => $queen->sql(q{SELECT extversion FROM pg_extension WHERE extname = 'queen'}) }, 'what health says');
    is_deeply($web->get('/status')->{json}, { status => 'ok', engine => 'segments-postgresql' }, 'what status says');

    my $before = $web->get('/metrics')->{json};
    is_deeply([ sort keys %$before ], [qw(cpu database memory messages queen requests uptime)], 'the parts of the metrics');
    is_deeply([ map { join ' ', sort keys %{ $before->{$_} } } qw(requests messages database memory cpu) ],
        [ 'rate total', 'rate total', 'idleConnections poolSize waitingRequests',
            'arrayBuffers external heapTotal heapUsed rss', 'system user' ], 'and their fields');
    $web->push(map { { queue => 'metrics', payload => $_, transactionId => $_ } } 'a', 'b', 'b');
    $web->push({ queue => 'metrics', payload => 1, transactionId => 'a' });
    $web->ack('completed', $web->pop('metrics'));
    $web->get('/nothing');
    my $after = $web->get('/metrics')->{json};
    my %grown = map { $_ => $after->{queen}{$_} - $before->{queen}{$_} } keys %{ $before->{queen} };
    is_deeply(
        { map { $_ => $grown{$_} } qw(pushRequests pushMessages pushDuplicates popRequests popMessages ackRequests ackMessages errors4xx errors5xx parkedPops) },
        { pushRequests => 2, pushMessages => 2, pushDuplicates => 2, popRequests => 1, popMessages => 2, ackRequests => 1,
            ackMessages => 2, errors4xx => 1, errors5xx => 0, parkedPops => 0 },
        'the counters count');
    is($after->{messages}{total} - $before->{messages}{total}, 4, 'messages in and out');
    is($after->{requests}{total} - $before->{requests}{total}, 6, 'requests');
    ok($after->{uptime} >= $before->{uptime} && $before->{uptime} > 0, 'it has been up for a while');
    ok($after->{database}{poolSize} > 0 && $after->{memory}{rss} > 1_000_000, 'connections and memory');
}

# What is no route, and methods that a route does not have.
{
    for my $path ('/', '/nowhere', '/api/v1', '/api/v1/push/x', '/api/v1/pop/queue', '/api/v1/pop/queue/a/partition',
        '/API/v1/push', '/api/v1/lease/x', '/healthz')
    {
        is_error($web->request($_, $path), 404, 'Not Found', "$_ $path", code => 'no_such_route') for qw(GET POST DELETE);
    }
    my %routes = (
        '/api/v1/push' => 'POST', '/api/v1/ack' => 'POST', '/api/v1/ack/batch' => 'POST', '/api/v1/configure' => 'POST',
        '/api/v1/lease/x/extend' => 'POST', '/api/v1/pop/queue/q' => 'GET', '/api/v1/pop/queue/q/partition/p' => 'GET',
        '/api/v1/resources/queues' => 'GET', '/api/v1/resources/queues/q' => 'GET, DELETE', '/api/v1/dlq' => 'GET, DELETE',
        '/health' => 'GET', '/status' => 'GET', '/metrics' => 'GET');
    for my $path (sort keys %routes)
    {
        for my $method (grep { $routes{$path} !~ /$_/ } qw(GET POST PUT DELETE PATCH OPTIONS))
        {
            my $response = $web->request($method, $path);
            is_error($response, 405, 'Method Not Allowed', "$method $path", code => 'method_not_allowed');
            is($response->{headers}{allow}, $routes{$path}, 'with the methods that are');
        }
    }
}

# Without the database.
{
    $queen->node->stop('fast');
    my $response;
    wait_until(sub { ($response = $web->get('/health'))->{status} == 503 }, 'the front end notices');
    is_deeply([ @{ $response->{json} }{qw(status database engine)} ], [qw(unhealthy disconnected segments-postgresql)],
        'health without a database');
    is($web->get('/status')->{status}, 200, 'status does not ask it');
    is($web->get('/metrics')->{status}, 200, 'nor do the metrics');
    for ([ GET => '/api/v1/resources/queues' ], [ GET => '/api/v1/dlq' ], [ DELETE => '/api/v1/resources/queues/q' ],
        [ POST => '/api/v1/configure', { queue => 'q' } ], [ GET => '/api/v1/pop/queue/q' ])
    {
        $response = $web->request(@$_);
        is($response->{status}, 503, "$_->[0] $_->[1]");
        ok($response->{headers}{'retry-after'} && $response->{json}{error}, 'says why, and to try again');
    }
    $queen->node->start;
    $web->wait_healthy;
    is(show('q')->{status}, 200, 'all is well when it is back');
}

$queen->finish;
