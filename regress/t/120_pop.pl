# GET /api/v1/pop: the answer, its parameters and their limits, consumer groups, names in paths.
use strict;
use warnings;
use utf8;
use Encode 'encode_utf8';
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error);
use Test::More;

my $queen = QueenTest->new('pop', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;
my $uuid = qr/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;

# Pushes payloads into one partition.
sub fill
{
    my ($queue, $partition, @payloads) = @_;
    return @{ $web->push(map { { queue => $queue, partition => $partition, payload => $_ } } @payloads) };
}
sub payloads { return join ' ', map { $_->{data} } @_; }
sub queue_exists { my ($name) = @_; return $queen->sql("SELECT count(*) FROM queen.queues WHERE name = '$name'"); }

# Seconds that the lease of a group on a queue still has.
sub lease_left
{
    my ($queue, $group) = @_;
    return $queen->sql(qq{SELECT extract(epoch FROM max(c.lease_expires_at) - clock_timestamp())
        FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
        JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = '$queue' AND c.consumer_group = '$group'});
}

# The answer, field by field.
{
    my ($pushed) = fill('shop.orders', 'cust-17', { total => 41.5 });
    my $response = $web->get('/api/v1/pop/queue/shop.orders?consumerGroup=billing&subscriptionMode=all');
    is($response->{status}, 200, 'a pop that finds a message');
    is($response->{headers}{'content-type'}, 'application/json', 'answers JSON');
    my $answer = $response->{json};
    my $message = $answer->{messages}[0];
    like($answer->{leaseId}, qr/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/, 'a lease id');
    like($answer->{partitionId}, qr/^$uuid$/, 'a partition id');
    like($message->{createdAt}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/, 'a time in microseconds, UTC');
    my %shared = (
        partition => 'cust-17',
        partitionId => $answer->{partitionId},
        leaseId => $answer->{leaseId},
        consumerGroup => 'billing');
    is_deeply(
        $answer,
        {
            %shared,
            success => JSON::PP::true,
            queue => 'shop.orders',
            partitionsClaimed => 1,
            messages => [
                {
                    %shared,
                    id => $pushed->{message_id},
                    transactionId => $pushed->{transaction_id},
                    traceId => undef,
                    data => { total => 41.5 },
                    producerSub => undef,
                    createdAt => $message->{createdAt},
                    deliveryAttempt => 1
                }
            ]
        },
        'the fields of an answer');

    my $connection = $web->connect;
    $connection->send('GET', '/api/v1/pop/queue/shop.orders?consumerGroup=billing');
    my $empty = $connection->receive;
    is("$empty->{status}$empty->{body}", '204', 'leased by another: 204');
    is_deeply([ grep { /content-/ } keys %{ $empty->{headers} } ], [], 'which has no body');
    $connection->send('GET', '/status');
    is($connection->receive->{status}, 200, 'and leaves the connection usable');

    my ($queue_mode) = $web->pop('shop.orders');
    is($queue_mode->{consumerGroup}, '__QUEUE_MODE__', 'without a group: queue mode');
    is(($web->pop('shop.orders', consumerGroup => ''))[0], undef, 'an empty group is none');
}

# The same messages again.
{
    fill('again', 'p', 'a' .. 'c');
    my @first = $web->pop('again', leaseSeconds => 30);
    $web->ack('retry', @first);
    my @second = $web->pop('again');
    is(payloads(@second), 'a b c', 'a batch given back comes again');
    is(join(' ', map { $_->{deliveryAttempt} } @first, @second), '1 1 1 2 2 2', 'and says so');
    isnt($second[0]{leaseId}, $first[0]{leaseId}, 'under another lease');
    is($second[0]{createdAt}, $first[0]{createdAt}, 'everything else is the same');
}

# A queue that nobody configured and no group has met: pushes alone make it known.
{
    fill('pushed.only', $_, $_) for qw(x y z);
    is(join(' ', sort split / /, payloads($web->pop('pushed.only', partitions => 3, autoAck => 'true'))), 'x y z',
        'V-30: a queue that only ever got pushes is found by a wildcard pop');
}

# autoAck.
{
    fill('auto', 'p', 1 .. 3);
    my $answer = $web->get('/api/v1/pop/queue/auto?autoAck=true&batch=2')->{json};
    is($answer->{leaseId}, '', 'autoAck takes no lease');
    is(join(' ', map { "$_->{data}/$_->{leaseId}/$_->{deliveryAttempt}" } @{ $answer->{messages} }), '1//1 2//1',
        'nor do its messages name one');
    is(payloads($web->pop('auto', autoAck => 'true')), '3', 'what was delivered is done');
    is(payloads($web->pop('auto', autoAck => 'true')), '', 'nothing comes twice');
}

# batch and partitions.
{
    fill('sizes', "p$_", ("p$_") x 100) for 1 .. 3;
    my $get = sub { return $web->get("/api/v1/pop/queue/sizes?consumerGroup=$_[0]&subscriptionMode=all$_[1]")->{json} };
    my $summary = sub {
        my ($answer) = @_;
        my @order;
        for (@{ $answer->{messages} }) { push @order, $_->{data} if !@order || $order[-1] ne $_->{data} }
        return sprintf '%d from %d, %d claimed', scalar @{ $answer->{messages} }, scalar @order, $answer->{partitionsClaimed};
    };
    is($summary->($get->('a', '')), '100 from 1, 1 claimed', 'one partition is the default');
    is($summary->($get->('b', '&partitions=3')), '200 from 2, 2 claimed', '200 messages are the default');
    my $several = $get->('c', '&partitions=3&batch=250');
    is($summary->($several), '250 from 3, 3 claimed', 'a budget for all partitions, one after the other');
    is(scalar(grep { $_->{leaseId} ne $several->{leaseId} } @{ $several->{messages} }), 0, 'under one lease');
    is($several->{partition}, $several->{messages}[0]{partition}, 'the first partition names the answer');
    is($summary->($get->('d', '&partitions=0&batch=1000')), '300 from 3, 3 claimed', 'partitions 0 is no cap');
    is($summary->($get->('e', '&partitions=-1&batch=1000')), '300 from 3, 3 claimed', 'less neither');
    is($summary->($get->('f', '&partitions=2&batch=1000')), '200 from 2, 2 claimed', 'two of three');
    is($summary->($get->('g', '&batch=0')), '1 from 1, 1 claimed', 'a batch below 1 counts as 1');
    is($summary->($get->('h', '&batch=-7')), '1 from 1, 1 claimed', 'or far below');
    is($summary->($get->('i', '&batch=10000&partitions=2147483647')), '300 from 3, 3 claimed', 'the largest of both');
    is($summary->($get->('j', '&batch=&partitions=')), '100 from 1, 1 claimed', 'empty values are none');
    is(scalar($web->pop('sizes', consumerGroup => 'k', subscriptionMode => 'all', partition => 'p2', partitions => 3, batch => 500)),
        100, 'a pinned pop has one partition');
    is($summary->($get->('l', '&batch=5&batch=7')), '5 from 1, 1 claimed', 'the first of two values counts');
    is($summary->($get->('m', '&autopilot=true&colour=red&batch=5')), '5 from 1, 1 claimed', 'unknown parameters do not matter');
}

# leaseSeconds.
{
    $web->post('/api/v1/configure', { queue => 'leases', options => { leaseTime => 500 } });
    fill('leases', 'p', 1);
    for ([ undef, 500 ], [ 7, 7 ], [ 86400, 86400 ], [ 0, 500 ], [ -5, 500 ])
    {
        my ($asked, $seconds) = @$_;
        my $group = 'g' . ($asked // 'none');
        $web->pop('leases', consumerGroup => $group, subscriptionMode => 'all', defined $asked ? (leaseSeconds => $asked) : ());
        my $left = lease_left('leases', $group);
        ok($left > $seconds - 5 && $left <= $seconds, "a lease of $seconds seconds") or diag $left;
    }
    fill('implicit', 'p', 1);
    $web->pop('implicit');
    ok(lease_left('implicit', '__QUEUE_MODE__') <= 60, 'of 60 on a queue that a push made');
}

# Values that do not parse, or are out of range.
for (
    (map { [ $_, 'abc', "$_ must be an integer" ], [ $_, '1.5', "$_ must be an integer" ], [ $_, '-', "$_ must be an integer" ],
            [ $_, '1e3', "$_ must be an integer" ], [ $_, '%205', "$_ must be an integer" ],
            [ $_, '9999999999999', "$_ must be an integer" ] } qw(batch partitions timeout leaseSeconds)),
    [ 'batch', 10001, 'batch must be at most 10000' ],
    [ 'timeout', 300001, 'timeout must be at most 300000' ],
    [ 'leaseSeconds', 86401, 'leaseSeconds must be at most 86400' ],
    [ 'partitions', 2147483648, 'partitions must be at most 2147483647' ],
    [ 'wait', 'yes', 'wait must be true or false' ],
    [ 'wait', 'TRUE', 'wait must be true or false' ],
    [ 'autoAck', 'x', 'autoAck must be true or false' ],
    [ 'consumerGroup', 'g' x 256, 'consumerGroup is longer than 255 characters' ],
    [ 'consumerGroup', 'a%0Ab', 'consumerGroup holds a control character' ],
    [ 'consumerGroup', '%ff', 'consumerGroup is not valid UTF-8' ],
  )
{
    my ($name, $value, $error) = @$_;
    is_error($web->get("/api/v1/pop/queue/bad?$name=$value"), 400, $error, "$name=" . substr($value, 0, 20));
}
is($web->get('/api/v1/pop/queue/good?wait=1&timeout=-5&autoAck=0')->{status}, 204, 'a timeout below 0 is none');
is($web->get('/api/v1/pop/queue/good?' . join '&', map { "$_=-99999999999" } qw(batch partitions timeout leaseSeconds))->{status}, 204, 'nor is one far below');
is($web->get('/api/v1/pop/queue/good?leaseSeconds=86400&timeout=300000&batch=10000')->{status}, 204, 'the limits themselves');
is($web->get('/api/v1/pop/queue/good?consumerGroup=' . '%C3%A9' x 255)->{status}, 204, '255 characters of a group');
is(queue_exists('bad'), 0, 'a refused pop creates nothing');

# Subscriptions.
{
    my ($old) = fill('subs', 'p1', 'old');
    my $all = $queen->start_frontend(args => [ '--subscription-mode', 'all' ]);
    my @from_start = (
        [ subscriptionMode => 'all' ], [ subscriptionMode => 'earliest' ], [ subscriptionMode => 'from_beginning' ],
        [ subscriptionMode => 'newest' ], [ subscriptionFrom => '2020-01-01T00:00:00.000Z' ],
        [ subscriptionFrom => '2020-01-01T00:00:00.000Z', subscriptionMode => 'new' ],
        [ subscriptionMode => 'all', subscriptionFrom => '' ]);
    my @from_now = (
        [], [ subscriptionMode => '' ], [ subscriptionMode => 'new' ], [ subscriptionMode => 'New-Only' ],
        [ subscriptionMode => 'new_only' ], [ subscriptionMode => 'NEWONLY' ], [ subscriptionMode => ' new ' ],
        [ subscriptionFrom => 'now' ], [ subscriptionFrom => 'now', subscriptionMode => 'all' ],
        [ subscriptionFrom => 'yesterday' ], [ subscriptionFrom => '2020-13-45T00:00:00Z', subscriptionMode => 'all' ],
        [ subscriptionFrom => '2999-01-01T00:00:00Z' ]);
    my $pop = sub {
        my ($group, @parameters) = @_;
        return payloads($web->pop('subs', consumerGroup => $group, autoAck => 'true', partitions => 0, @parameters));
    };
    is($pop->("all$_", @{ $from_start[$_] }), 'old', "V-33: from the start: @{ $from_start[$_] }") for 0 .. $#from_start;
    is($pop->("new$_", @{ $from_now[$_] }), '', "V-33: from now on: @{ $from_now[$_] }") for 0 .. $#from_now;
    is(payloads($all->pop('subs', consumerGroup => 'default-all', autoAck => 'true')), 'old', 'another default mode');
    is(payloads($all->pop('subs', consumerGroup => 'default-new', autoAck => 'true', subscriptionMode => 'new')),
        '', 'a mode beats it');
    is(payloads($web->pop('subs', subscriptionMode => 'new', subscriptionFrom => 'now', autoAck => 'true')), 'old',
        'V-33: queue mode always starts at the oldest message');

    fill('subs', 'p1', 'later');
    fill('subs', 'p2', 'elsewhere');
    for my $group ((map { "all$_" } 0 .. $#from_start), (map { "new$_" } 0 .. $#from_now - 1))
    {
        is(join(' ', sort split / /, $pop->($group, subscriptionMode => 'new', subscriptionFrom => 'now')), 'elsewhere later',
            "V-33: $group gets what came later, in a partition created later too, whatever it asks for now");
    }
    is($pop->("new$#from_now"), 'later', 'a time in the future is the tail of each partition at first contact');

    my $time = ($web->pop('subs', consumerGroup => 'look', subscriptionMode => 'all', partition => 'p1'))[1]{createdAt};
    is($pop->('time', subscriptionFrom => $time, subscriptionMode => 'all', partition => 'p1'), 'later', 'from a time on');
    (my $offset_time = $time) =~ s/Z/+00:00/;
    is($pop->('offset', subscriptionFrom => $offset_time, partition => 'p1'), 'later', 'written with an offset');
    $pop->('pinned', subscriptionMode => 'new', partition => 'p1');
    is($pop->('pinned', partition => 'p1'), '', 'a pinned pop starts its group, too');
}

# Which pops create the queue.
is($web->get('/api/v1/pop/queue/made.by.pop')->{status}, 204, 'a pop of a queue that does not exist');
is($queen->sql(q{SELECT namespace, task, lease_time FROM queen.queues WHERE name = 'made.by.pop'}), 'made|by|60',
    'creates it like a push');
is($web->get('/api/v1/pop/queue/pinned/partition/p')->{status}, 204, 'a pinned pop of one');
is(queue_exists('pinned'), 0, 'does not');
fill('half', 'p', 1);
is($web->get('/api/v1/pop/queue/half/partition/q')->{status}, 204, 'nor does it make a partition');
is($queen->sql(q{SELECT count(*) FROM queen.log_partitions WHERE name = 'q'}), 0, 'of a queue that is there');
is($web->get('/api/v1/pop/queue/early?consumerGroup=g')->{status}, 204, 'a group comes before its queue');
fill('early', 'p', 1);
is(payloads($web->pop('early', consumerGroup => 'g')), '1', 'and gets the first message');

# Names in paths, raw and percent-encoded.
for my $name ('simple', 'é', '語🐇', "it's", 'a"b', 'a|b', 'a(b)c', 'a:b@c', 'a+b', 'a&b=c', '~-._')
{
    fill($name, $name, 'raw', 'encoded');
    my $raw = encode_utf8($name);
    my $encoded = join '', map { sprintf '%%%02x', ord } split //, $raw;
    for ([ raw => $raw ], [ encoded => $encoded ])
    {
        my ($form, $text) = @$_;
        my $answer = $web->get("/api/v1/pop/queue/$text/partition/$text?autoAck=true&batch=1")->{json};
        is(payloads(@{ $answer->{messages} }), $form, "$raw, $form");
        is("$answer->{queue} $answer->{partition}", "$name $name", 'reaches the queue of that name');
    }
}
for my $name ('a/b', 'a b', 'a%b', 'a?b', 'a#b', '%2F', '..', '.', '')
{
    fill($name, 'p', $name);
    is(payloads($web->pop($name, autoAck => 'true', partition => 'p')), $name, "'$name' works when encoded");
}
is($web->get('/api/v1/pop/queue/a/b')->{status}, 404, 'a raw slash separates segments');
is($web->get('/api/v1/pop/queue/a%2Fb/partition/p')->{status}, 204, 'an encoded one does not');
is_error($web->get("/api/v1/pop/queue/$_->[0]"), 400, $_->[1], $_->[0])
  for (
    [ '%ff', 'queue is not valid UTF-8' ], [ '%c0%ae', 'queue is not valid UTF-8' ], [ '%ed%a0%80', 'queue is not valid UTF-8' ],
    [ '%00', 'queue holds a control character' ], [ 'a%7f', 'queue holds a control character' ],
    [ 'q/partition/%0a', 'partition holds a control character' ], [ 'q/partition/%ff', 'partition is not valid UTF-8' ],
    [ 'q?batch=%', 'bad percent-encoding in the query' ],
    [ '%C3%A9' x 256, 'queue is longer than 255 characters' ]);

# Clients send names as they are: a percent sign that begins no escape is part of one.
$web->push({ queue => '50%', partition => '%zz', payload => 1 }, { queue => '%4', payload => 2 });
is($web->get('/api/v1/pop/queue/50%/partition/%zz?autoAck=true')->{json}{messages}[0]{data}, 1, 'a percent sign in a name');
is($web->get('/api/v1/pop/queue/%4?autoAck=true')->{json}{messages}[0]{data}, 2, 'and half an escape');

# A client that asks for the headers only must not get a lease.
{
    fill('head', 'p', 1);
    my $connection = $web->connect;
    $connection->send('HEAD', '/api/v1/pop/queue/head');
    my $response = $connection->receive('no body');
    is("$response->{status} $response->{headers}{allow}", '405 GET', 'HEAD of a pop is refused');
    is(payloads($web->pop('head')), '1', 'and leased nothing');
    is($web->post('/api/v1/pop/queue/head', '')->{status}, 405, 'POST is refused, too');
}

$queen->finish;
