# Resources, status, analytics and metrics: every answer against a workload whose numbers are known.
use strict;
use warnings;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('reports', conf => "queen.history_interval = '1s'\n");
my $web = $queen->start_frontend;
my $time = qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;
my $false = JSON::PP::false;

sub get { my ($path) = @_; my $r = $web->get($path); is($r->{status}, 200, $path); return $r->{json}; }
sub named { my ($list, $field, $name) = @_; return (grep { $_->{$field} eq $name } @$list)[0]; }
sub sum { my ($list, $field) = @_; my $n = 0; $n += $_->{$field} for @$list; return $n; }

# Before there is anything.
{
    is_deeply(get('/api/v1/resources/queues'), { queues => [] }, 'no queues');
    is_deeply(get('/api/v1/resources/namespaces'), { namespaces => [] }, 'no namespaces');
    my $overview = get('/api/v1/resources/overview');
    is_deeply([ @$overview{qw(queues partitions namespaces tasks)} ], [ 0, 0, 0, 0 ], 'an empty overview');
    is_deeply($overview->{lag}{time}, { avg => 0, median => 0, min => 0, max => 0 }, 'no lag');
    is(get('/api/v1/status')->{messages}{total}, 0, 'an empty status');
    is_deeply(get('/api/v1/analytics/queue-lag'), [], 'a bare array');
}

# orders: partition a has 6 messages, of which group g has completed 2, buried 1 and holds 2; b has 4 that nobody
# has read. mail: 3 messages, all delivered with autoAck.
$web->post('/api/v1/configure', { queue => 'orders', namespace => 'shop', task => 'pay', options => { retryLimit => 0 } });
$web->post('/api/v1/configure', { queue => 'mail', namespace => 'shop', task => 'send' });
sub send_to { my ($queue, $partition, $n) = @_; return $web->post('/api/v1/push', { items => [ map { { queue => $queue, partition => $partition, transactionId => "$partition$_", payload => { n => $_ } } } 1 .. $n ] }); }
send_to('orders', 'a', 6);
send_to('orders', 'b', 4);
send_to('mail', 'm', 3);
my $pop = '/api/v1/pop/queue/orders/partition/a?consumerGroup=g&subscriptionMode=all&batch=';
my $first = $web->get($pop . 3)->{json};
$web->post('/api/v1/ack/batch', { consumerGroup => 'g', acknowledgments => [ map { { transactionId => $_->[0], partitionId => $first->{partitionId}, leaseId => $first->{leaseId}, status => $_->[1], error => $_->[2] } } [ a1 => 'completed' ], [ a2 => 'completed' ], [ a3 => 'dlq', 'no stock of "4711"' ] ] });
my $second = $web->get($pop . 2)->{json};
is(scalar @{ $second->{messages} }, 2, 'two are under a lease');
is(scalar @{ $web->get('/api/v1/pop/queue/mail?autoAck=true&batch=10')->{json}{messages} }, 3, 'three are delivered');
is($web->get('/api/v1/pop/queue/mail?autoAck=true')->{status}, 204, 'no more');

# Resources.
{
    my $queues = get('/api/v1/resources/queues')->{queues};
    is_deeply(named($queues, name => 'orders')->{messages}, { total => 10, pending => 7, processing => 2 }, 'the listing counts');
    my $depth = get('/api/v1/resources/queues/orders/depth?group=g');
    is_deeply(
        $depth,
        {
            queue => 'orders', group => 'g', pending => 7, processing => 2, ready => 5, partitionsPending => 2,
            partitionsReady => 2, conflation => $false, effectivePending => 7, effectiveReady => 5,
            partitions => [
                { partition => 'a', pending => 3, processing => 2, ready => 1 },
                { partition => 'b', pending => 4, processing => 0, ready => 4 } ]
        },
        'the depth of a group');
    is(get('/api/v1/resources/queues/orders/depth?group=other')->{pending}, 10, 'of a group that has not come yet');
    is(get('/api/v1/resources/queues/orders/depth')->{pending}, 7, 'without a group the slowest one counts');
    is_error($web->get('/api/v1/resources/queues/none/depth'), 404, 'Queue not found', 'of a queue that is none');
    is_deeply(
        get('/api/v1/resources/namespaces'),
        { namespaces => [ { namespace => 'shop', queues => 2, partitions => 3, messages => { total => 13, pending => 7 } } ] },
        'namespaces');
    is_deeply(
        named(get('/api/v1/resources/tasks')->{tasks}, task => 'send'),
        { task => 'send', queues => 1, partitions => 1, messages => { total => 3, pending => 0 } }, 'tasks');
    my $overview = get('/api/v1/resources/overview');
    is_deeply([ @$overview{qw(queues partitions namespaces tasks statsAge)} ], [ 2, 3, 1, 2, 0 ], 'the overview counts');
    is_deeply($overview->{messages},
        { total => 13, pending => 7, processing => 2, completed => 5, failed => 0, deadLetter => 1 }, 'and sums');
    is_deeply($overview->{lag}{offset}, { avg => 3.5, median => 3.5, min => 3, max => 4 }, 'messages behind');
    cmp_ok($overview->{lag}{time}{max}, '>=', $overview->{lag}{time}{min}, 'and for how long');
    like($overview->{timestamp}, $time, 'as of');
}

# stats=cached may be as old as ten seconds; without it everything is as of now.
{
    get('/api/v1/resources/queues');
    send_to('later', 'l', 1);
    ok(!named(get('/api/v1/resources/queues?stats=cached')->{queues}, name => 'later'), 'a cached listing is of before');
    ok(named(get('/api/v1/resources/queues')->{queues}, name => 'later'), 'one that is not, of now');
    ok(named(get('/api/v1/resources/queues?stats=cached')->{queues}, name => 'later'), 'and takes its place');
    $web->request('DELETE', '/api/v1/resources/queues/later');
}

# The history knows what happened once its worker has looked.
wait_until(sub { $queen->sql(q{SELECT coalesce(sum(pop_messages), 0) FROM queen.queue_history JOIN queen.queues AS q ON q.id = queue_id WHERE q.name IN ('orders', 'mail')}) == 8 }, 'the history has it');

# Status.
{
    my $status = get('/api/v1/status');
    is_deeply($status->{messages}, {
            total => 13, pending => 7, processing => 2, completed => 5, failed => 0, deadLetter => 1,
            requests => { push => 3, pop => 4, ack => 6 },
            batchEfficiency => { push => 4.33, pop => 2, ack => 1 } }, 'messages');
    is(sum($status->{throughput}, 'ingested'), 13, 'ingested');
    is(sum($status->{throughput}, 'popMessages'), 8, 'delivered');
    is(sum($status->{throughput}, 'processed'), 5, 'completed');
    is(sum($status->{throughput}, 'dlqCount'), 1, 'buried');
    is($status->{bucketMinutes}, 1, 'minutes');
    is(scalar @{ $status->{throughput} }, $status->{pointCount}, 'a point per bucket');
    cmp_ok($status->{pointCount}, '>=', 60, 'of an hour');
    is_deeply($status->{leases}, { active => 1, partitionsWithLeases => 1, totalBatchSize => 2, totalAcked => 6 }, 'leases');
    is_deeply($status->{deadLetterQueue}, { totalMessages => 1, affectedPartitions => 1, topErrors => [ { error => 'no stock of "4711"', count => 1 } ] }, 'dead letters');
    is(scalar @{ $status->{workers} }, 1, 'a worker');
    is(named($status->{queues}, name => 'mail')->{totalConsumed}, 3, 'consumed');
    is(get('/api/v1/status?queue=mail')->{messages}{total}, 3, 'of one queue');
    is(get('/api/v1/status?namespace=none')->{messages}{total}, 0, 'of a namespace that is none');
    is(get('/api/v1/status?task=pay')->{messages}{total}, 10, 'of a task');
    for ([ 6 => 5 ], [ 24 => 15 ], [ 168 => 60 ], [ 169 => 360 ])
    {
        my ($hours, $minutes) = @$_;
        my ($from, $to) = split /\|/, $queen->sql("SELECT queen.wire_time(now() - interval '$hours hours'), queen.wire_time(now())");
        is(get("/api/v1/status?from=$from&to=$to")->{bucketMinutes}, $minutes, "buckets of $hours hours");
    }
    my $queues = get('/api/v1/status/queues?limit=1&offset=1');
    is_deeply($queues->{pagination}, { limit => 1, offset => 1 }, 'a page');
    is(join(' ', map { $_->{name} } @{ $queues->{queues} }), 'orders', 'of queues');
    is_deeply($queues->{queues}[0]{messages}, { total => 10, pending => 7, processing => 2, completed => 2, deadLetter => 1 }, 'with counters');
    my $queue = get('/api/v1/status/queues/orders?includePartitions=true');
    is($queue->{queue}{config}{retryLimit}, 0, 'a queue with its options');
    is_deeply($queue->{totals}{messages}, { total => 10, pending => 7, processing => 2, completed => 2, deadLetter => 1 }, 'its totals');
    is($queue->{partitions}[0]{cursor}{totalConsumed}, 3, 'and its cursors');
    like($queue->{partitions}[1]{$_}, $time, $_) for qw(lastActivity oldestMessage newestMessage createdAt);
    is_error($web->get('/api/v1/status/queues/none'), 404, 'Queue not found', 'no such queue');
    my $points = get('/api/v1/status/analytics?interval=minute');
    is(sum($points->{dataPoints}, 'messages'), 13, 'messages over time');
    is($points->{interval}, 'minute', 'by the minute');
}

# Analytics.
{
    my $lag = get('/api/v1/analytics/queue-lag?queue=mail');
    is(sum($lag, 'popCount'), 2, 'pops');
    like($lag->[0]{bucketTime}, $time, 'per bucket');
    my $ops = get('/api/v1/analytics/queue-ops');
    my @orders = grep { $_->{queueName} eq 'orders' } @{ $ops->{series} };
    is(sum(\@orders, 'pushMessages'), 10, 'pushed');
    is(sum(\@orders, 'ackSuccess'), 2, 'acknowledged');
    is(sum(\@orders, 'ackFailed'), 1, 'and not');
    is(sum(\@orders, 'partitionsCreated'), 2, 'partitions created');
    is($orders[-1]{partitionCount}, 2, 'partitions');
    is_deeply($ops->{queues}, [ 'mail', 'orders' ], 'queues');
    is_deeply(get('/api/v1/analytics/queue-parked-replicas')->{replicas}, [], 'parked');
    is_deeply(get('/api/v1/analytics/retention')->{totals}, { retentionMsgs => 0, completedRetentionMsgs => 0, evictionMsgs => 0, totalMsgs => 0, eventCount => 0 }, 'nothing was deleted');
    my $workers = get('/api/v1/analytics/worker-metrics');
    is_deeply([ @{ $workers->{summary} }{qw(totalPushMessages totalPopMessages totalAckMessages pendingMessages)} ], [ 13, 8, 6, 7 ], 'a summary');
    like($workers->{workers}[0]{lastSeen}, $time, 'of workers');
    my $workload = get('/api/v1/analytics/workload?groupBy=task');
    is(named($workload->{groups}, name => 'pay')->{totals}{pushMessages}, 10, 'the load of a task');
    is(named($workload->{groups}, name => 'pay')->{gauges}{pending}, 7, 'and its backlog');
    my $signatures = get('/api/v1/analytics/dlq-signatures?queue=orders')->{signatures};
    is_deeply([ @{ $signatures->[0] }{qw(signature count example)} ], [ 'no stock of <text>', 1, 'no stock of "4711"' ], 'errors by their shape');
    is_deeply(named(get('/api/v1/analytics/partition-liveness')->{queues}, queueName => 'orders'), { queueName => 'orders', partitions => 2, activePartitions => 2, idlePartitions => 0 }, 'partitions that live');
    ok(get('/api/v1/analytics/postgres-stats')->{database}{sizeBytes} > 0, 'the database');
    my $replica = get('/api/v1/analytics/system-metrics')->{replicas}[0];
    ok($replica->{timeSeries}[0]{metrics}{memory}{rssMb}{last} > 0, 'this process');
}

# What retention does shows up by rule and by queue.
$queen->sql(q{INSERT INTO queen.retention_history SELECT p.id, 5, 'completed_retention' FROM queen.log_partitions AS p WHERE p.name = 'a'});
{
    my $retention = get('/api/v1/analytics/retention?groupBy=queue');
    is_deeply($retention->{totals}, { retentionMsgs => 0, completedRetentionMsgs => 5, evictionMsgs => 0, totalMsgs => 5, eventCount => 1 }, 'what retention deleted');
    is(named($retention->{queues}, queueName => 'orders')->{totalMsgs}, 5, 'by queue');
    is(sum($retention->{series}, 'totalMsgs'), 5, 'by bucket');
}

# Bad input.
for my $path (qw(/api/v1/status /api/v1/status/analytics /api/v1/analytics/queue-lag /api/v1/analytics/queue-ops /api/v1/analytics/queue-parked-replicas /api/v1/analytics/retention /api/v1/analytics/worker-metrics /api/v1/analytics/workload))
{
    is_error($web->get("$path?from=yesterday"), 400, 'from is not a time', "$path: a time that is none", invalid => 'from');
    is_error($web->get("$path?to=2026-13-45"), 400, 'to is not a time', 'nor this', invalid => 'to');
    is_error($web->get("$path?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"), 400, 'from must be before to, by at most 366 days', 'backwards', invalid => 'from');
    is_error($web->get("$path?from=2020-01-02T00:00:00Z"), 400, 'from must be before to, by at most 366 days', 'too long', invalid => 'from');
    is_error($web->get("$path?namespace=%01"), 400, 'namespace holds a control character', 'a filter that is no name');
}
is_error($web->get('/api/v1/analytics/retention?groupBy=x'), 400, 'bad groupBy', 'an unknown grouping');
is_error($web->get('/api/v1/analytics/workload?groupBy=x'), 400, 'bad groupBy', 'here too');
is_error($web->get('/api/v1/status/analytics?interval=x'), 400, 'interval must be minute, hour or day, and fit 10,000 times into the range', 'an unknown interval', invalid => 'interval');
is_error($web->get('/api/v1/status/analytics?interval=minute&from=2026-11-01T00:00:00Z'), 400, 'interval must be minute, hour or day, and fit 10,000 times into the range', 'too many points', invalid => 'interval');
is_error($web->get('/api/v1/analytics/dlq-signatures'), 400, 'queue is required', 'signatures need a queue');

# Prometheus: the format as its own tool sees it, and the numbers.
{
    send_to('quote"back\\slash', 'p', 1);
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM queen.queue_history JOIN queen.queues AS q ON q.id = queue_id WHERE q.name LIKE 'quote%'}) > 0 }, 'its history is there');
    my $response = $web->get('/metrics/prometheus');
    is($response->{headers}{'content-type'}, 'text/plain; version=0.0.4; charset=utf-8', 'the type of the text format');
    my ($output, $error) = ('', '');
    IPC::Run::run([qw(promtool check metrics)], '<', \$response->{body}, '>', \$output, '2>', \$error);
    # Two names that other Queen servers have given are not in seconds.
    is(join('', sort grep { !/^queen_(?:event_loop_lag_avg|queue_pop_lag)_milliseconds use base unit/ } split /^/, $output . $error), '',
        'promtool has nothing else to say');
    like($response->{body}, qr/^queen_cluster_push_messages_total\{scope="cluster"\} 15$/m, 'messages, those of deleted queues included') or diag $response->{body};
    like($response->{body}, qr/^queen_process_push_messages_total 15$/m, 'of this process');
    like($response->{body}, qr/^queen_dlq_depth_by_queue\{queue="orders"\} 1$/m, 'dead letters');
    like($response->{body}, qr/^queen_file_buffer_db_healthy 1$/m, 'pushes reach the database');
    like($response->{body}, qr/^queen_queue_push_messages_per_minute\{queue="quote\\"back\\\\slash"\} /m, 'labels are escaped');
    like($response->{body}, qr/^queen_queue_metrics_age_seconds\{queue="quote/m, 'with their age');
}

# Without the database the process still has something to say.
$queen->node->stop('fast');
wait_until(sub { $web->get('/health')->{status} == 503 }, 'the front end has noticed');
{
    my $response = $web->get('/metrics/prometheus');
    is($response->{status}, 200, 'metrics without a database');
    like($response->{body}, qr/^queen_process_push_messages_total 15$/m, 'show the process');
    like($response->{body}, qr/^queen_file_buffer_db_healthy 0$/m, 'and that pushes do not reach the database');
    unlike($response->{body}, qr/queen_cluster/, 'and nothing else');
    is($web->get('/api/v1/status')->{status}, 503, 'a report cannot be had');
}
$queen->node->start;
$queen->finish;
