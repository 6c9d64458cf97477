# docs/openapi.yaml: every route of the server is in it and every route of it in the server,
# with the same level, and every answer to good and bad requests is as it says.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(wait_until);
use QueenToken;
use Test::More;

my $root = "$FindBin::Bin/../..";
my $file = "$root/docs/openapi.yaml";
my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my $nobody = '00000000-0000-4000-8000-000000000000';
my ($true, $false) = (JSON::PP::true, JSON::PP::false);

# Runs a program of the linter's or the validator's; returns its status and output.
sub run_node
{
    my ($input, @command) = @_;
    local $ENV{NODE_PATH} = "$root/build/node/node_modules";
    local $ENV{REDOCLY_TELEMETRY} = 'off';
    local $ENV{REDOCLY_SUPPRESS_UPDATE_NOTICE} = 'true';
    my ($output, $error) = ('', '');
    IPC::Run::run([ 'node', @command ], '<', \$input, '>', \$output, '2>', \$error);
    return ($? >> 8, $output, $error);
}

{
    my ($status, $output, $error) = run_node('', "$root/build/node/node_modules/\@redocly/cli/bin/cli.js",
        'lint', '--config', "$root/regress/openapi/redocly.yaml", '--format', 'stylish', $file);
    is($status, 0, 'the linter finds nothing') or diag "$output$error";
}

my $queen = QueenTest->new('openapi', conf => "synchronous_commit = off\nqueen.history_interval = '1s'\n");
my $web = $queen->start_frontend;
my @exchanges;

# One request; what went over the wire is kept for the validator.
sub request
{
    my ($method, $path, $body, %options) = @_;
    my $response = ($options{web} // $web)->request($method, $path, $body, %{ $options{headers} // {} });
    push @exchanges,
      {
        method => $method, path => $path, status => $response->{status}, type => $response->{headers}{'content-type'},
        text => utf8_text($response->{body}), (ref $body ? (request => $body) : ()) };
    return $response->{json};
}
sub utf8_text { my ($bytes) = @_; utf8::decode($bytes); return $bytes; }
sub get { my ($path, %options) = @_; return request('GET', $path, undef, %options); }
sub post { my ($path, $body, %options) = @_; return request('POST', $path, $body, %options); }
sub remove { my ($path) = @_; return request('DELETE', $path); }
sub push_to { my ($queue, $partition, @ids) = @_; return post('/api/v1/push', { items => [ map { { queue => $queue, partition => $partition, transactionId => "$_", payload => { id => $_ } } } @ids ] }); }
sub pop_of { my ($query) = @_; return get("/api/v1/pop/queue/$query")->{messages}; }

# Queues and their messages.
post('/api/v1/configure', { queue => 'shop.orders', namespace => 'shop', task => 'orders', mode => 'merge', options => { leaseTime => 60, retryLimit => 0, deadLetterQueue => $true, retentionSinkHold => 'cold', maxWaitTimeSeconds => undef } });
post('/api/v1/configure', $_) for { namespace => 'no queue' }, { queue => 'x', options => { leaseTime => 'long' } }, '[';
push_to('shop.orders', 'c-1', 1 .. 9);
push_to('shop.orders', 'c-1', 1);
push_to('shop.orders', 'c-2', 10 .. 12);
post('/api/v1/push', $_) for { items => [] }, { items => [ { queue => 'plain', payload => undef } ] }, { items => 1 }, { items => [ { payload => 1 } ] }, '{';
my @batch = @{ pop_of('shop.orders?consumerGroup=billing&subscriptionMode=all&batch=9&leaseSeconds=60&wait=true&timeout=1000') };
is(scalar @batch, 9, 'a batch');
pop_of('shop.orders/partition/c-2?consumerGroup=audit&batch=1&subscriptionFrom=2020-01-01T00:00:00Z');
get('/api/v1/pop/queue/shop.orders/partition/none');
get('/api/v1/pop/queue/shop.orders/partition/c-1?batch=many');
get('/api/v1/pop/queue/empty?autoAck=true');
get('/api/v1/pop/queue/empty?timeout=soon');
get('/api/v1/pop?namespace=shop&task=orders&consumerGroup=found&subscriptionMode=all&partitions=2&batch=2');
get('/api/v1/pop?namespace=none');
get('/api/v1/pop');

# Acknowledgements, leases, transactions.
sub ack_of { my ($message, %more) = @_; return { (map { $_ => $message->{$_} } qw(transactionId partitionId leaseId)), %more }; }
my ($partition, $lease) = @{ $batch[0] }{qw(partitionId leaseId)};
post("/api/v1/lease/$lease/extend", { seconds => 90 });
post("/api/v1/lease/$nobody/extend");
post('/api/v1/ack', ack_of($batch[0], status => 'completed', consumerGroup => 'billing', error => undef));
post('/api/v1/ack', $_) for ack_of($batch[1], leaseId => $nobody, consumerGroup => 'billing'), { transactionId => 'x' }, '{"transactionId":';
post('/api/v1/ack/batch', { consumerGroup => 'billing', acknowledgments => [ ack_of($batch[1]), ack_of($batch[2], status => 'dlq', error => 'card declined'), ack_of({ %{ $batch[2] }, transactionId => 'unknown' }) ] });
post('/api/v1/ack/batch', $_) for { acknowledgments => [] }, { acknowledgments => 'none' }, 'x';
sub bury
{
    my @messages = @{ pop_of('shop.orders/partition/c-1?consumerGroup=billing&batch=' . shift) };
    post('/api/v1/ack/batch', { consumerGroup => 'billing', acknowledgments => [ map { ack_of($_, status => 'failed', error => 'card declined') } $_ ] }) for @messages;
    return;
}
my ($fourth) = @{ pop_of('shop.orders/partition/c-1?consumerGroup=billing&batch=1') };
post('/api/v1/transaction', {
        operations => [
            { type => 'push', items => [ { queue => 'shop.invoices', partition => 'c-1', payload => { order => 4 }, transactionId => 'i-4' }, { queue => 'shop.invoices', data => [] } ] },
            { type => 'push', queue => 'shop.invoices', partition => 'c-1', payload => 1, transactionId => 'i-4', traceId => $nobody },
            { type => 'ack', consumerGroup => 'billing', status => 'completed', %{ ack_of($fourth) } } ],
        requiredLeases => [ $fourth->{leaseId} ] });
post('/api/v1/transaction', $_)
  for { operations => [ { type => 'push', queue => 'shop.invoices', partition => 'c-1', transactionId => 'i-4' } ] },
  { operations => [ { type => 'ack', %{ ack_of($fourth, leaseId => $nobody) } } ] }, { operations => [] }, '{';

# Dead letters and messages.
bury(1) for 1 .. 4;
my $letters = get('/api/v1/dlq?queue=shop.orders&consumerGroup=billing&partition=c-1&limit=10&offset=0&from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z');
cmp_ok(scalar @{ $letters->{messages} }, '>=', 3, 'dead letters');
get('/api/v1/dlq?from=soon');
my @letters = @{ $letters->{messages} };
post("/api/v1/dlq/$letters[0]{id}/replay", { queue => 'shop.again', partition => 'c-1' });
post("/api/v1/dlq/$letters[0]{id}/replay");
post("/api/v1/dlq/$letters[1]{id}/replay", { queue => '' });
post("/api/v1/messages/$partition/$letters[1]{transactionId}/retry");
post("/api/v1/messages/$partition/none/retry");
$queen->sql('UPDATE queen.log_dlq SET payload = NULL');
{
    my $unreadable = get('/api/v1/dlq')->{messages}[0];
    post("/api/v1/dlq/$unreadable->{id}/replay");
    post("/api/v1/messages/$unreadable->{partitionId}/$unreadable->{transactionId}/retry");
}
get('/api/v1/messages?queue=shop.orders&partition=c-1&namespace=shop&task=orders&status=pending&from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&limit=5&offset=0');
get('/api/v1/messages');
get('/api/v1/messages?status=lost');
get("/api/v1/messages/$partition/$_") for $letters[2]{transactionId}, 1, 'none';
remove("/api/v1/messages/$partition/$_") for $letters[3]{transactionId}, 'none';

# Consumer groups. What is two hours old is lagging, and what may not get that old is deleted.
push_to('shop.old', 'c-1', 1);
$queen->sql(q{UPDATE queen.log_segments SET created_at = created_at - interval '2 hours'});
post('/api/v1/configure', { queue => 'shop.old', mode => 'replace', maxWaitTimeSeconds => 60 });
$queen->sql('CALL queen.maintain()');
get('/api/v1/consumer-groups');
is(scalar @{ get('/api/v1/consumer-groups/lagging?minLagSeconds=60') } > 0, 1, 'a lagging group');
get('/api/v1/consumer-groups/billing');
get('/api/v1/consumer-groups/nobody');
post('/api/v1/consumer-groups/billing/subscription', $_) for { subscriptionTimestamp => '2026-05-01T00:00:00Z' }, {}, { subscriptionTimestamp => 'soon' };
post("/api/v1/consumer-groups/billing/queues/$_->[0]/seek", $_->[1])
  for [ 'shop.orders', { toEnd => $true } ], [ 'shop.orders', { beginning => $true } ], [ 'shop.orders', { timestamp => '2026-05-01T00:00:00Z' } ], [ 'shop.orders', {} ], [ 'none', { toEnd => $true } ];
post("/api/v1/consumer-groups/billing/queues/shop.orders/partitions/$_->[0]/seek", $_->[1])
  for [ 'c-1', undef ], [ 'c-1', { timestamp => '2026-05-01T00:00:00Z' } ], [ 'c-1', { timestamp => 'soon' } ], [ 'none', { toEnd => $true } ];
remove('/api/v1/consumer-groups/audit/queues/shop.orders?deleteMetadata=false');
remove('/api/v1/consumer-groups/audit');
post('/api/v1/stats/refresh');

# Traces.
post('/api/v1/traces', $_)
  for { transactionId => '1', partitionId => $partition, consumerGroup => 'billing', eventType => 'step', data => { step => 'paid' }, traceNames => [ 'order-1', 'card' ] },
  { transactionId => 'none', partitionId => $nobody, data => {}, traceNames => 'order-1' }, { transactionId => '1', partitionId => $partition }, '{';
get("/api/v1/traces/$partition/1");
get("/api/v1/traces/$partition/none");
get('/api/v1/traces/by-name/order-1?limit=10&offset=0');
get('/api/v1/traces/names?limit=10&offset=0');

# Streams.
{
    my %totals = (name => 'totals', source_queue => 'shop.again', config_hash => 'v1');
    my $query = post('/streams/v1/queries', { %totals, sink_queue => 'shop.sums', reset => $false })->{query_id};
    post('/streams/v1/queries', $_) for { %totals, config_hash => 'v2' }, { name => 'totals' };
    push_to('shop.again', 'c-1', 1 .. 3);
    my $source = get('/api/v1/pop/queue/shop.again/partition/c-1?consumerGroup=streams.totals&subscriptionMode=all&batch=2');
    my %cycle = (query_id => $query, partition_id => $source->{partitionId}, consumer_group => 'streams.totals');
    my %ack = (transactionId => $source->{messages}[-1]{transactionId}, leaseId => $source->{leaseId}, status => 'completed', count => 2);
    my @changes = (
        state_ops => [ { type => 'upsert', key => 'w:1', value => { n => 2, windowEnd => 1778490000000 } }, { type => 'upsert', key => 'w:2', value => 'text' }, { type => 'delete', key => 'w:0' } ],
        push_items => [ { queue => 'shop.sums', partition => 'c-1', payload => { n => 2 } }, { queue => 'shop.sums', data => 1, transactionId => 's-1', messageId => $nobody } ]);
    post('/streams/v1/cycle', { %cycle, @changes, ack => \%ack, release_lease => $true });
    post('/streams/v1/cycle', $_) for { %cycle, @changes, ack => undef }, { %cycle, ack => \%ack }, { partition_id => $nobody };
    post('/streams/v1/state/get', { query_id => $query, partition_id => $source->{partitionId}, keys => [], key_prefix => 'w:', ripe_at_or_before => 1778490000000 });
    post('/streams/v1/state/get', { query_id => $query, partition_id => $source->{partitionId}, keys => ['w:2'] });
    post('/streams/v1/state/get', { query_id => $nobody, partition_id => $nobody, keys => [] });
}

# Maintenance; without a spool it is refused.
{
    my $spooling = $queen->start_frontend(env => { FILE_BUFFER_DIR => PostgreSQL::Test::Utils::tempdir });
    my @there = (web => $spooling);
    for my $mode ('', '/pop')
    {
        post("/api/v1/system/maintenance$mode", { enabled => $true }, @there);
        post("/api/v1/system/maintenance$mode", {}, @there);
        get("/api/v1/system/maintenance$mode", @there);
        post('/api/v1/push', { items => [ { queue => 'shop.again', partition => 'c-1', payload => 1 } ] }, @there);
        get('/api/v1/status/buffers', @there);
        post("/api/v1/system/maintenance$mode", { enabled => $false }, @there);
    }
    post('/api/v1/system/maintenance', { enabled => $true });
    wait_until(sub { get('/api/v1/status/buffers', @there)->{pending} == 0 }, 'the spool is stored');
    get($_) for '/api/v1/status/buffers', '/api/v1/system/shared-state', '/internal/api/shared-state/stats', '/internal/api/inter-instance/stats';
    post('/internal/api/notify', $_) for { queue => 'shop.again', partition => 'c-1' }, {};
}

# Reports.
my $filters = 'queue=shop.orders&namespace=shop&task=orders';
my $range = 'from=' . $queen->sql(q{SELECT to_char(now() AT TIME ZONE 'UTC' - interval '3 hours', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')});
my $parked = $web->connect;
$parked->send('GET', '/api/v1/pop/queue/idle?wait=true&timeout=60000');
wait_until(sub { $queen->sql(q{SELECT count(*) FROM queen.queue_history WHERE parked > 0}) > 0 }, 'the history has a parked pop');
for my $path (
    '/resources/queues', '/resources/namespaces', '/resources/tasks', '/resources/overview',
    '/resources/queues?stats=cached', '/resources/queues/shop.orders', '/resources/queues/none', '/resources/queues/shop.orders/depth?group=billing', '/resources/queues/none/depth',
    '/resources/namespaces?stats=cached', '/resources/tasks?stats=cached', '/resources/overview?stats=cached',
    "/status?$filters&$range", '/status', "/status/queues?$filters&limit=1&offset=0", '/status/queues/shop.orders', '/status/queues/none',
    "/status/analytics?$filters&$range&interval=hour", '/status/analytics?interval=century', "/analytics/queue-lag?$filters&$range", "/analytics/queue-ops?$filters&$range", '/analytics/queue-parked-replicas',
    "/analytics/retention?$range", '/analytics/retention?groupBy=queue', '/analytics/retention?groupBy=color', '/analytics/worker-metrics', "/analytics/worker-metrics?$filters&$range",
    '/analytics/workload?groupBy=queue', '/analytics/workload?groupBy=task', "/analytics/workload?$filters&$range", '/analytics/workload?groupBy=color',
    '/analytics/dlq-signatures?queue=shop.orders', '/analytics/dlq-signatures', '/analytics/partition-liveness', "/analytics/partition-liveness?$filters", '/analytics/postgres-stats', '/analytics/system-metrics',
    (map { "$_?from=soon" } qw(/status /analytics/queue-lag /analytics/queue-ops /analytics/queue-parked-replicas /analytics/worker-metrics)))
{
    get("/api/v1$path");
}
$parked->close;

# The server itself.
get($_) for qw(/health /status /metrics /metrics/prometheus /auth/me /auth/login);
post('/auth/logout');

# Deletions.
remove("/api/v1/dlq?queue=shop.orders$_") for '&consumerGroup=billing', '';
remove('/api/v1/dlq');
remove('/api/v1/resources/queues/shop.invoices');
remove('/api/v1/resources/queues/none');

my @routes = map { { method => $_->[0], path => $_->[1] =~ s/:(\w+)/{$1}/gr, level => lc $_->[2] =~ s/_/-/r } } QueenTest::routes();

# For every route the first request that was answered well.
for my $route (@routes) { $route->{pattern} = join '[^/?]*', map { quotemeta } split /\{\w+\}/, $route->{path}, -1; }
for my $exchange (@exchanges)
{
    my ($route) = grep { $_->{method} eq $exchange->{method} && $exchange->{path} =~ /^$_->{pattern}(?:\?|$)/ } @routes;
    $route->{good} //= $exchange if $exchange->{status} < 300;
}
is(join("\n", map { "$_->{method} $_->{path}" } grep { !$_->{good} } @routes), '', 'every route has answered well');
my @good = map { { level => $_->{level}, %{ $_->{good} } } } grep { $_->{good} } @routes;
sub again { my ($exchange, %options) = @_; return request(@$exchange{qw(method path request)}, %options); }

# Without a token, and with one whose role does not reach that far.
{
    my $key = QueenToken::key('HS256');
    my $guarded = $queen->start_frontend(env => { JWT_ENABLED => 'true', JWT_SECRET => $key->{secret} });
    my %less = ('read-only' => 'write-only', 'write-only' => 'read-only', 'read-write' => 'read-only', admin => 'read-write');
    for my $exchange (@good)
    {
        my $role = $less{ $exchange->{level} };
        again($exchange, web => $guarded);
        again($exchange, web => $guarded, headers => { Authorization => 'Bearer ' . $key->token({ role => $role }) }) if $role;
    }
}

# Without the database.
$queen->node->stop('immediate');
wait_until(sub { $web->get('/health')->{status} == 503 }, 'the database is missed');
again($_) for @good;
$queen->node->start;
$web->wait_healthy;

{
    my ($status, $output, $error) = run_node($json->encode(\@exchanges), "$root/regress/openapi/validate.js", $file);
    is($status, 0, 'the validator runs') or diag $error;
    my $verdict = $json->decode($output);
    for my $n (0 .. $#exchanges)
    {
        my $name = "$exchanges[$n]{method} " . utf8_text($exchanges[$n]{path} =~ s/[0-9a-f-]{36}/ID/gr) . " $exchanges[$n]{status}";
        is(join("\n", @{ $verdict->{errors}[$n] }), '', $name) or diag $exchanges[$n]{text};
    }
    is(join("\n", @{ $verdict->{unseen} }), '', 'every answer that is described was seen');
    my $list = sub { return join "\n", sort map { "$_->{method} $_->{path} $_->{level}" } @_ };
    is($list->(@{ $verdict->{operations} }), $list->(@routes), 'the file has the routes of the server, with their levels');
}
$queen->finish;
