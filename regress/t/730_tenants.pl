# V-96: tenants that try each other's names and ids on every route there is.
use strict;
use warnings;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('tenants', conf => "queen.workers = off\n");
my $web = $queen->start_frontend(args => [ '--threads', 1 ], env => { QUEEN_TENANCY_HEADER => 1, QUEEN_KV_TRUSTED_PROXY => 1 });
my ($default, $ours, $theirs) = ('00000000-0000-0000-0000-000000000001', map { "$_-0000-4000-8000-000000000000" } qw(a1000000 a2000000));

sub as { my ($tenant, $method, $path, $body) = @_; return $web->request($method, $path, $body, defined $tenant ? ('X-Queen-Tenant' => $tenant) : ()); }
sub push_one { my ($tenant, %item) = @_; is(as($tenant, 'POST', '/api/v1/push', { items => [ \%item ] })->{json}[0]{status}, 'queued', 'a push'); return; }
sub pop_one { my ($tenant, $path) = @_; my $r = as($tenant, 'GET', "/api/v1/pop/queue/$path"); return $r->{status} == 204 ? undef : $r->{json}{messages}[0]; }

# The header.
push_one(undef, queue => 'header', payload => 'default');
push_one($ours, queue => 'header', payload => 'ours');
is(pop_one('', 'header')->{data}, 'default', 'an empty header is the default tenant');
is(pop_one($theirs, 'header'), undef, 'another tenant has another queue of that name');
is(pop_one(uc $ours, 'header')->{data}, 'ours', 'a tenant in capitals');
is_error(as($_, 'GET', '/status'), 400, 'x-queen-tenant is not a UUID', "tenant \"$_\"") for 'x', "$ours ,", "{$ours}", $ours =~ s/-//gr, "${ours}0", "$ours,$theirs";
{
    my $both = $web->connect;
    $both->write("GET /status HTTP/1.1\r\nHost: x\r\nX-Queen-Tenant: $ours\r\nx-queen-tenant: $theirs\r\n\r\n");
    is_error($both->receive, 400, 'more than one X-Queen-Tenant', 'two headers');
    my $off = $queen->start_frontend(args => [ '--threads', 1 ]);
    is($off->request('POST', '/api/v1/push', { items => [ { queue => 'off', payload => 1 } ] }, 'X-Queen-Tenant' => 'x')->{status}, 201, 'switched off, it is ignored');
    is($queen->sql("SELECT tenant_id FROM queen.queues WHERE name = 'off'"), $default, 'and all belongs to the default tenant');
    $off->stop;
    local %ENV = (%ENV, QUEEN_TENANCY_HEADER => 1);
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check' ], '>', \my $output, '2>', \my $said);
    is($? >> 8, 2, 'without a proxy that is trusted it does not start');
    like($said, qr/^queen-frontend: tenancy-header trusts whoever sets the header: set trusted-proxy too/, 'and says why');
}

# What one tenant has: a leased message, a dead letter, a group, a trace.
as($ours, 'POST', '/api/v1/configure', { queue => 'queue-of-a', namespace => 'namespace-of-a', task => 'task-of-a' });
push_one($ours, queue => 'queue-of-a', partition => 'partition-of-a', transactionId => "id-of-a-$_", payload => 'payload-of-a') for 1 .. 4;
my $path = 'queue-of-a/partition/partition-of-a?consumerGroup=group-of-a&subscriptionMode=all&leaseSeconds=3600';
my $dead = pop_one($ours, $path);
my %ack = map { $_ => $dead->{$_} } qw(transactionId partitionId leaseId consumerGroup);
is(as($ours, 'POST', '/api/v1/ack', { %ack, status => 'dlq', error => 'error-of-a' })->{json}[0]{success}, JSON::PP::true(), 'a dead letter');
my $held = pop_one($ours, $path);
%ack = map { $_ => $held->{$_} } qw(transactionId partitionId leaseId consumerGroup);
my %trace = (partitionId => $held->{partitionId}, transactionId => $held->{transactionId}, traceNames => ['trace-of-a'], data => { text => 'trace-data-of-a' });
is(as($ours, 'POST', '/api/v1/traces', \%trace)->{status}, 201, 'a trace');
my %stream = (consumer_group => 'group-of-a', partition_id => $held->{partitionId}, push_items => [], ack => undef);
$stream{query_id} = as($ours, 'POST', '/streams/v1/queries', { name => 'stream-of-a', source_queue => 'queue-of-a', config_hash => 'x' })->{json}{query_id};
my @state = ({ type => 'upsert', key => 'key-of-a', value => 'state-of-a' });
is(as($ours, 'POST', '/streams/v1/cycle', { %stream, state_ops => \@state })->{json}{success}, JSON::PP::true(), 'the state of a stream');
my ($dead_id) = as($ours, 'GET', '/api/v1/dlq')->{json}{messages}[0]{id};

# The requests, with the ids of the first tenant. A route that is missing here fails the test.
my %parameters = (
    queue => 'queue-of-a', partition => 'partition-of-a', group => 'group-of-a', name => 'trace-of-a', leaseId => $held->{leaseId},
    partitionId => $held->{partitionId}, transactionId => $held->{transactionId}, id => $dead_id);
my @items = ({ type => 'ack', %ack, status => 'completed' });
my %bodies = (
    '/api/v1/push' => { items => [ { queue => 'queue-of-a', partition => 'partition-of-b', transactionId => 'id-of-b', payload => 'b' } ] },
    '/api/v1/ack' => { %ack, status => 'completed' },
    '/api/v1/ack/batch' => { consumerGroup => 'group-of-a', acknowledgments => [ { %ack, status => 'dlq' } ] },
    '/api/v1/transaction' => { operations => \@items, requiredLeases => [ $held->{leaseId} ] },
    '/api/v1/lease/:leaseId/extend' => { seconds => 7200 },
    '/api/v1/configure' => { queue => 'queue-of-a', options => { leaseTime => 7 } },
    '/api/v1/consumer-groups/:group/subscription' => { subscriptionTimestamp => '2020-01-01T00:00:00Z' },
    '/api/v1/consumer-groups/:group/queues/:queue/seek' => { toEnd => JSON::PP::true() },
    '/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek' => { toEnd => JSON::PP::true() },
    '/api/v1/stats/refresh' => {},
    '/api/v1/traces' => { %trace, traceNames => ['trace-of-b'], data => { text => 'b' } },
    '/api/v1/dlq/:id/replay' => {},
    '/api/v1/messages/:partitionId/:transactionId/retry' => {},
    '/streams/v1/queries' => { name => 'stream-of-b', source_queue => 'queue-of-a', config_hash => 'x' },
    '/streams/v1/state/get' => { %stream{qw(query_id partition_id)}, keys => [] },
    '/streams/v1/cycle' => { %stream, state_ops => [ { %{ $state[0] }, value => 'b' }, { type => 'upsert', key => 'b', value => 'b' } ] },
    '/auth/logout' => {});
my %global = map { $_ => 1 } qw(/metrics /metrics/prometheus /health /api/v1/analytics/system-metrics);    # of the whole process
my @markers = map { "$_-of-a" } qw(queue partition namespace task payload id error group trace trace-data key state);

# Every row that the first tenant's data consists of.
my $all_rows = join ' UNION ALL ', map { "SELECT '$_: ' || t::text FROM $_ t" } split /\n/,
  $queen->sql(q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'queen'::regnamespace AND relkind = 'r' ORDER BY 1});
sub rows
{
    my %rows;
    $rows{$_}++ for split /\n/, $queen->sql($all_rows);
    return \%rows;
}

my $before = rows();
my %seen;
for my $route (QueenTest::routes())
{
    my ($method, $pattern) = @$route;
    next if $pattern =~ m{^/(?:api/v1/system|internal)/};    # the server's, not a tenant's
    my @missing = grep { !exists $parameters{$_} } $pattern =~ /:(\w+)/g;
    my $body = $bodies{$pattern};
    if (@missing || ($method =~ /POST|PUT/ && !$body))
    {
        fail("$method $pattern has a request in this test");
        next;
    }
    my $target = $pattern =~ s/:(\w+)/$parameters{$1}/gr;
    $target .= '?queue=queue-of-a&consumerGroup=group-of-a&namespace=namespace-of-a&subscriptionMode=all' if $method ne 'POST' && !$global{$pattern};
    my $request = $target . ($body ? JSON::PP->new->encode($body) : '');
    my $answer = as($theirs, $method, $target, $method eq 'POST' ? $body : undef);
    cmp_ok($answer->{status}, '<', 500, "$method $pattern: an answer");
    unlike($answer->{body}, qr/\Q$_\E/, "$method $pattern shows nothing of $_") for $global{$pattern} ? () : grep { index($request, $_) < 0 } @markers;
    my $after = rows();
    my @changed = grep { ($after->{$_} // 0) < $before->{$_} } sort keys %$before;
    is_deeply(\@changed, [], "$method $pattern changes nothing of the other tenant");
    if (($method eq 'GET' && $pattern !~ m{/pop}) || $pattern eq '/streams/v1/state/get')
    {
        my $own = as($ours, $method, $target, $body)->{body};
        $seen{$_}++ for grep { index($own, $_) >= 0 } @markers;
    }
}
is_deeply([ grep { !$seen{$_} } @markers ], [], 'its owner sees all of it');

# A stream of one's own opens nothing of another tenant either.
{
    my $query = as($theirs, 'POST', '/streams/v1/queries', $bodies{'/streams/v1/queries'})->{json}{query_id};
    for my $case ([ 'state' ], [ 'a batch', ack => { %ack{qw(transactionId leaseId)}, status => 'completed' } ])
    {
        my ($name, %more) = @$case;
        my $answer = as($theirs, 'POST', '/streams/v1/cycle', { %stream, %more, query_id => $query, state_ops => \@state });
        is("$answer->{status} $answer->{json}{success}", '200 0', "no cycle on the partition of another tenant: $name");
    }
}

# Who owns the lease still holds it, and the other tenant's queue of that name is its own.
is(as($ours, 'POST', '/api/v1/ack', { %ack, status => 'completed' })->{json}[0]{success}, JSON::PP::true(), 'the holder acknowledges');
is(as($theirs, 'POST', '/api/v1/ack', { %ack, status => 'completed' })->{json}[0]{success}, JSON::PP::false(), 'nobody else');

# A push wakes the pops of its own tenant only.
{
    my %polls = map { my $c = $web->connect; $c->send('GET', '/api/v1/pop/queue/wake?wait=true&timeout=100000', undef, 'X-Queen-Tenant' => $_); ($_ => $c) } $ours, $theirs;
    wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 2 }, 'two tenants wait');
    push_one($theirs, queue => 'wake', payload => 'theirs');
    is($polls{$theirs}->receive->{json}{messages}[0]{data}, 'theirs', 'the pop of the tenant that pushed');
    ok(!$polls{$ours}->readable, 'the other one waits on');
    push_one($ours, queue => 'wake', payload => 'ours');
    is($polls{$ours}->receive->{json}{messages}[0]{data}, 'ours', 'for its own');
}

# Messages of several tenants in one request's time share calls, and never a partition.
{
    my @tenants = map { sprintf 'b%07d-0000-4000-8000-000000000000', $_ } 1 .. 20;
    my @pushes = map { my $c = $web->connect; $c->send('POST', '/api/v1/push', { items => [ { queue => 'fused', transactionId => 'same', payload => $_ } ] }, 'X-Queen-Tenant' => $_); $c } @tenants;
    is_deeply([ map { $_->receive->{json}[0]{status} } @pushes ], [ map { 'queued' } @tenants ], 'the same id for each tenant');
    is_deeply([ map { pop_one($_, 'fused?batch=10')->{data} } @tenants ], \@tenants, 'each gets its own');
}

$queen->finish;
