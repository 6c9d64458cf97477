# Hostile names (faults.md 3.4) through every route that takes one, in its path or its body, and
# through the listings, metrics, views and logs: the same characters come back.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Encode ();
use JSON::PP ();
use QueenTest 'is_error';
use Test::More;

my $queen = QueenTest->new('names');
my $web = $queen->start_frontend(args => [ '--threads', 1 ], env => { LOG_LEVEL => 'debug' });

my %names = (
    'one character' => 'x', 'the limit' => 'q' x 255, 'the limit, of 4 bytes each' => "\x{1f600}" x 255, 'quotes' => q{a'b"c''d},
    'semicolons' => "'; DROP TABLE queen.queues; --", 'dollars' => '$$ $1 $x$', 'percent' => '%s%n%d%2F%00', 'backslash' => 'a\\b\\\\c\\n',
    'backtick' => '`id`', 'right-to-left' => "\x{202e}abc\x{202c}", 'NFC' => "gr\x{fc}\x{df}", 'NFD' => "gru\x{308}\x{df}", 'spaces around' => '  x  ',
    'a space' => ' ', 'a plus' => 'a+b', 'a dot' => '.', 'dots' => '..', 'slash' => 'a/../b', 'keyword' => 'select', 'our own table' => 'queen.log_segments',
    'query' => '?a=b&c#d', 'braces' => '{a,NULL}', 'NULL' => 'NULL', 'markup' => '<script>alert(1)</script>', 'no-break space' => "\x{a0}",
    'line separator' => "\x{2028}", 'next line' => "\x{85}", 'noncharacter' => "\x{ffff}", 'JSON' => '{"a":"\\u0000"}', 'a wildcard' => '%_*');

sub seen { my ($list, %wanted) = @_; return scalar grep { my $e = $_; !grep { ($e->{$_} // '') ne $wanted{$_} } keys %wanted } @$list; }

# Queue, partition, group, transaction id and name of a trace are all the same; returns the steps
# that did not do what they do with plain names.
sub walk
{
    my ($name) = @_;
    my $n = QueenTest::Frontend::escape($name);
    my @wrong;
    my $step = sub { my ($what, $response, $check) = @_; push @wrong, "$what: $response->{status} $response->{body}" unless $response->{status} < 300 && eval { $check->($response->{json}) }; return; };
    my %one = (queue => $name, partition => $name);
    my ($queued) = @{ $web->push({ %one, transactionId => $name, payload => $name }, { %one, transactionId => "~$n", payload => 2 }) };
    push @wrong, 'push' unless $queued->{status} eq 'queued' && $queued->{transaction_id} eq $name && $queued->{queueName} eq $name;
    $step->('configure', $web->post('/api/v1/configure', { queue => $name, namespace => $name, task => $name }), sub { $_[0]{queue} eq $name });

    my ($message) = $web->pop($name, partition => $name, consumerGroup => $name, subscriptionMode => 'all');
    return 'pop' unless $message && "$message->{transactionId}|$message->{data}|$message->{consumerGroup}|$message->{partition}" eq join '|', ($name) x 4;
    my %ack = map { $_ => $message->{$_} } qw(transactionId partitionId leaseId consumerGroup);
    $step->('ack', $web->post('/api/v1/ack', { %ack, status => 'dlq', error => $name }), sub { $_[0][0]{success} && $_[0][0]{dlq} && $_[0][0]{transactionId} eq $name });

    my $letters = $web->get("/api/v1/dlq?queue=$n&partition=$n&consumerGroup=$n");
    $step->('dlq', $letters, sub { seen($_[0]{messages}, %one, consumerGroup => $name, transactionId => $name, errorMessage => $name, data => $name) == 1 });
    $step->('signatures', $web->get("/api/v1/analytics/dlq-signatures?queue=$n"), sub { $letters->{json}{messages}[0] && 1 });
    $step->('message', $web->get("/api/v1/messages/$message->{partitionId}/$n"), sub { $_[0]{transactionId} eq $name && $_[0]{queue} eq $name });
    $step->('messages', $web->get("/api/v1/messages?queue=$n&partition=$n&namespace=$n&task=$n"), sub { seen($_[0]{messages}, %one, transactionId => $name) == 1 });
    $step->('replay', $web->post("/api/v1/messages/$message->{partitionId}/$n/retry", {}), sub { 1 });
    $step->('purge', $web->request('DELETE', "/api/v1/dlq?queue=$n&consumerGroup=$n"), sub { 1 });

    my %trace = (partitionId => $message->{partitionId}, transactionId => $name, consumerGroup => $name, eventType => $name, traceNames => [$name], data => { text => $name });
    $step->('trace', $web->post('/api/v1/traces', \%trace), sub { 1 });
    $step->('traces by name', $web->get("/api/v1/traces/by-name/$n"), sub { seen($_[0]{traces}, transaction_id => $name, event_type => $name) == 1 });
    $step->('traces', $web->get("/api/v1/traces/$message->{partitionId}/$n"), sub { seen($_[0]{traces}, event_type => $name) == 1 });

    $step->('seek', $web->post("/api/v1/consumer-groups/$n/queues/$n/seek", { beginning => JSON::PP::true() }), sub { $_[0]{consumerGroup} eq $name && $_[0]{queueName} eq $name });
    $step->('seek of a partition', $web->post("/api/v1/consumer-groups/$n/queues/$n/partitions/$n/seek", { toEnd => JSON::PP::true() }), sub { $_[0]{partitionName} eq $name });
    $step->('subscription', $web->post("/api/v1/consumer-groups/$n/subscription", { subscriptionTimestamp => '2026-05-01T00:00:00Z' }), sub { $_[0]{consumerGroup} eq $name });
    $step->('groups', $web->get('/api/v1/consumer-groups'), sub { seen($_[0], name => $name, queueName => $name) == 1 });
    $step->('group', $web->get("/api/v1/consumer-groups/$n"), sub { seen($_[0]{$name}{partitions}, partition => $name) == 1 });

    $step->('queues', $web->get('/api/v1/resources/queues'), sub { seen($_[0]{queues}, name => $name) == 1 });
    $step->('namespaces', $web->get('/api/v1/resources/namespaces'), sub { seen($_[0]{namespaces}, namespace => $name) == 1 });
    $step->($_, $web->get("/api/v1/$_"), sub { 1 }) for "resources/queues/$n/depth?consumerGroup=$n", "status/queues?queue=$n&namespace=$n&task=$n", "analytics/queue-lag?queue=$n";
    $step->($_, $web->get("/api/v1/$_"), sub { index(JSON::PP->new->encode($_[0]), substr(JSON::PP->new->encode([$name]), 1, -1)) >= 0 }) for "resources/queues/$n", "status/queues/$n";
    my $hex = unpack 'H*', Encode::encode('utf8', $name);
    my $rows = $queen->sql("SELECT count(*) FROM queen.pg_stat_queen_consumers WHERE (queue, consumer_group) = (convert_from('\\x$hex', 'UTF8'), convert_from('\\x$hex', 'UTF8'))");
    push @wrong, "view of the consumers: $rows" if $rows != 1;

    $step->('deletion of the group in the queue', $web->request('DELETE', "/api/v1/consumer-groups/$n/queues/$n"), sub { $_[0]{consumerGroup} eq $name && $_[0]{queueName} eq $name && $_[0]{deletedPartitions} == 1 });
    ($message) = $web->pop($name, consumerGroup => $name, subscriptionMode => 'all');
    $step->('ack after that', $web->post('/api/v1/ack', { (map { $_ => $message->{$_} } keys %ack), status => 'dlq' }), sub { $_[0][0]{dlq} });
    $step->('deletion of the group', $web->request('DELETE', "/api/v1/consumer-groups/$n"), sub { $_[0]{consumerGroup} eq $name && $_[0]{deletedPartitions} == 1 });
    return join "\n", @wrong;
}

for my $what (sort keys %names)
{
    is(walk($names{$what}), '', $what);
}

# The metrics: a label per queue, with the escapes of the format, one line per sample.
{
    my $text = $web->get('/metrics/prometheus')->{body};
    utf8::decode($text);
    my %labels;
    my @bad = grep { !/^#/ && !/^[a-z_]+(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? \S+\z/ } split /\n/, $text;
    is_deeply(\@bad, [], 'every sample of the metrics can be parsed');
    $labels{ $1 =~ s/\\(.)/$1/gr } = 1 while $text =~ /queue="((?:[^"\\]|\\.)*)"/g;
    is_deeply([ grep { !$labels{ $names{$_} } } sort keys %names ], [], 'every queue has its label');
}

# Deletion by name takes that queue only.
for my $what (sort keys %names)
{
    my $before = $queen->sql('SELECT count(*) FROM queen.queues WHERE deleted_at IS NULL');
    is($web->request('DELETE', '/api/v1/resources/queues/' . QueenTest::Frontend::escape($names{$what}))->{status}, 200, "$what: deleted");
    is($queen->sql('SELECT count(*) FROM queen.queues WHERE deleted_at IS NULL'), $before - 1, "$what: and nothing else");
}

# What is no name is refused in every place, with the same words.
for my $bad ([ "a\nb", 'holds a control character' ], [ "\x7f", 'holds a control character' ], [ "a\0", 'holds a control character' ], [ 'x' x 256, 'is longer than 255 characters' ])
{
    my ($name, $why) = @$bad;
    my $n = QueenTest::Frontend::escape($name);
    is_error($web->post('/api/v1/push', { items => [ { queue => $name, payload => 1 } ] }), 400, "items[0].queue $why", "push: $why");
    is_error($web->get("/api/v1/pop/queue/$n"), 400, "queue $why", "pop: $why");
    is_error($web->get("/api/v1/pop/queue/q/partition/$n"), 400, "partition $why", "pop of a partition: $why");
    is_error($web->get("/api/v1/pop/queue/q?consumerGroup=$n"), 400, "consumerGroup $why", "group of a pop: $why");
    for my $request ([ 'POST', "/api/v1/consumer-groups/$n/queues/q/seek", { toEnd => JSON::PP::true() } ], [ 'POST', "/api/v1/consumer-groups/g/queues/$n/seek", { toEnd => JSON::PP::true() } ],
        [ 'POST', "/api/v1/consumer-groups/g/queues/q/partitions/$n/seek", {} ], [ 'DELETE', "/api/v1/consumer-groups/$n" ], [ 'DELETE', "/api/v1/consumer-groups/g/queues/$n" ],
        [ 'POST', "/api/v1/consumer-groups/$n/subscription", { subscriptionTimestamp => '2026-05-01T00:00:00Z' } ], [ 'DELETE', "/api/v1/resources/queues/$n" ],
        [ 'GET', "/api/v1/resources/queues/$n" ], [ 'GET', "/api/v1/dlq?queue=$n" ], [ 'GET', "/api/v1/messages?partition=$n" ], [ 'GET', "/api/v1/traces/by-name/$n" ])
    {
        my $response = $web->request(@$request);
        ok($response->{status} =~ /^(?:200|400|404)$/ && ref $response->{json}, "$request->[0] $request->[1]") or diag "$response->{status} $response->{body}";
    }
}

like($web->log, qr/\A(?:\d{4}-\d\d-\d\dT[\d:.]+Z (?:error|warn|info|debug) [ -~]*\n)+\z/, 'the log has one line per event');
$queen->finish;
