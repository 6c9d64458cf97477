# POST /api/v1/push: what the answer says, what a consumer then gets, deduplication, bad input.
use strict;
use warnings;
use utf8;
use Encode 'encode_utf8';
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error raw_payloads wait_until);
use Test::More;

my $queen = QueenTest->new('push', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;
my $other = $queen->start_frontend;
my $uuid = qr/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

sub item { my ($queue, %fields) = @_; return { queue => $queue, payload => 1, %fields }; }
sub statuses { return join ' ', map { $_->{status} } @_; }
sub refused
{
    my ($body, $error, $name) = @_;
    is_error($web->post('/api/v1/push', $body), 400, $error, $name);
    return;
}

# The answer, field by field.
{
    my $response = $web->post('/api/v1/push',
        { items => [ item('a', partition => 'p', transactionId => 'id-1'), item('a') ] });
    is($response->{status}, 201, 'pushed');
    is($response->{headers}{'content-type'}, 'application/json', 'the answer is JSON');
    my ($first, $second) = @{ $response->{json} };
    is_deeply(
        $first,
        {
            index => 0,
            message_id => $first->{message_id},
            transaction_id => 'id-1',
            queueName => 'a',
            status => 'queued'
        },
        'the fields of an item');
    like($first->{message_id}, $uuid, 'the message id is a UUID of version 7');
    is($second->{index}, 1, 'items are numbered');
    is($second->{transaction_id}, $second->{message_id}, 'the message id stands in for a transaction id');
    my ($message) = $web->pop('a', partition => 'p');
    is("$message->{id} $message->{transactionId}", "$first->{message_id} id-1", 'consumers see both ids');
    is(($web->pop('a', partition => 'Default'))[0]{id}, $second->{message_id}, 'the default partition');
    is_deeply($web->push(), [], 'no items, no answers');
    is($web->post('/api/v1/push', { items => [] })->{status}, 201, 'and still 201');
    is($web->post('/api/v1/push', '{"items":[{"queue":"a","payload":1}]}', 'Content-Type' => 'text/plain')->{status},
        201, 'the content type is not looked at');
    is(statuses(@{ $web->push(item('a', traceId => 7, producerSub => [], colour => 'red')) }),
        'queued', 'other fields do not matter');
    is(
        $web->post('/api/v1/push', '{"hint":{"items":[]},"items":[{"queue":"a","payload":null,"transactionId":null}]}')
          ->{json}[0]{status},
        'queued',
        'nor do other members; a null id is none');
}

# Payloads of every type come back.
{
    my @payloads = ('null', '{}', '[]', '""', '0', 'true', 'false', '[null,{"a":[]}]');
    my $items = join ',', map { qq({"queue":"types","payload":$_}) } @payloads;
    is($web->post('/api/v1/push', qq({"items":[$items]}))->{status}, 201, 'any JSON is a payload');
    is_deeply([ raw_payloads($web->get('/api/v1/pop/queue/types')->{body}) ],
        \@payloads, 'and comes back as it was');
}

# The queue that a push creates.
{
    $web->push(item('shop.orders.eu'), item('plain'));
    is($queen->sql(q{SELECT name, namespace, task, lease_time FROM queen.queues
                     WHERE name IN ('shop.orders.eu', 'plain') ORDER BY name}),
        "plain|plain||60\nshop.orders.eu|shop|orders|60", 'namespace, task and lease of an implicit queue');
}

# Order.
{
    my @expected;
    for my $round (1 .. 6)
    {
        my @texts = map { "$round/$_" } 1 .. 40;
        push @expected, @texts;
        my @items = map { item('order', partition => $_ % 2 ? 'odd' : 'even', payload => $texts[ $_ - 1 ]) } 1 .. 40;
        ($round % 2 ? $web : $other)->push(@items);
    }
    my ($odd, $even) = map {
        [ $web->pop('order', partition => $_, batch => 1000) ]
    } qw(odd even);
    is_deeply(
        [ map { $_->{data} } @$odd ],
        [ grep { m{[13579]$} } @expected ],
        'V-07: a partition has the order of the requests and of the items in them');
    is(@$even, 120, 'V-07: the other partition has its own');
    my @ids = map { $_->{id} } grep { $_->{data} =~ m{^1/} } @$odd;
    is_deeply(\@ids, [ sort @ids ], 'ids ascend in the order of the partition');
    is(scalar(grep { $_ > 0 } map { $odd->[$_]{createdAt} lt $odd->[ $_ - 1 ]{createdAt} } 1 .. $#$odd),
        0, 'times never step back');
}

# Duplicates.
{
    my $first = $web->push(item('dup', transactionId => 'x', payload => 'first'))->[0];
    for my $frontend ($web, $other)
    {
        my $second = $frontend->push(item('dup', transactionId => 'x', payload => 'second'))->[0];
        is("$second->{status} $second->{message_id}", "duplicate $first->{message_id}",
            'V-10: a repeated id names the message that has it');
    }
    is_deeply([ map { $_->{data} } $web->pop('dup') ], ['first'], 'V-10: one message is there');

    my $answer = $web->push(
        item('dup', transactionId => 'y'), item('dup', transactionId => 'x'),
        item('dup', transactionId => 'y'), item('dup', transactionId => 'y', partition => 'p'),
        item('dup'), item('dup'));
    is(statuses(@$answer), 'queued duplicate duplicate queued queued queued', 'V-11: inside one request');
    is($answer->[2]{message_id}, $answer->[0]{message_id}, 'V-11: a later one names the first');
    is($answer->[1]{message_id}, $first->{message_id}, 'V-11: beside one of an earlier request');

    is(
        statuses(@{ $web->post('/api/v1/push', encode_utf8(
            '{"items":[{"queue":"dup","payload":1,"transactionId":"z/é"},' .
            '{"queue":"d\u0075p","payload":1,"transactionId":"\u007a\/\u00e9"}]}'))->{json} }),
        'queued duplicate',
        'V-11: names and ids are compared after decoding');

    $web->post('/api/v1/configure', { queue => 'no-dedup', options => { dedupWindowSeconds => 0 } });
    is(statuses(@{ $web->push(map { item('no-dedup', transactionId => 'x') } 1 .. 2) }),
        'queued duplicate', 'without a window only a request is compared');
    is(statuses(@{ $web->push(item('no-dedup', transactionId => 'x')) }), 'queued', 'not the past');
}

# The same ids at the same time, through two front ends: all requests are sent before any answer
# is read.
for my $round (1 .. 5)
{
    my @connections = map { $_ % 2 ? $web->connect : $other->connect } 1 .. 16;
    my @items = map { item('race', partition => "p$_", transactionId => "race-$round") } 1 .. 3;
    $_->send('POST', '/api/v1/push', { items => [ @items, item('race', transactionId => "own-$round") ] })
      for @connections;
    my @answers = map { $_->receive->{json} } @connections;
    for my $i (0 .. 3)
    {
        my @verdicts = map { $_->[$i] } @answers;
        my @queued = grep { $_->{status} eq 'queued' } @verdicts;
        is(@queued, 1, 'V-11: of concurrent pushes exactly one is stored');
        is(scalar(grep { $_->{message_id} eq $queued[0]{message_id} } @verdicts),
            16, 'V-11: and every answer names it');
    }
}
is($queen->sql(q{SELECT count(*), sum(last_offset + 1) FROM queen.log_partitions p JOIN queen.queues q
                 ON q.id = p.queue_id WHERE q.name = 'race'}), '4|20', 'V-11: no other copy was stored');

# Names and ids at their limits.
for my $unit ('a', 'é', '語', '🐇')
{
    my $name = $unit x 255;
    is(statuses(@{ $web->push(item($name, partition => $name)) }), 'queued', '255 characters are a name');
    is(scalar($web->pop($name, partition => $name)), 1, 'that consumers can use');
    refused({ items => [ item("$name$unit") ] }, 'items[0].queue is longer than 255 characters', '256 are not');
    refused({ items => [ item('q', partition => "$name$unit") ] },
        'items[0].partition is longer than 255 characters', 'of a partition neither');
}
for my $unit ('a', "é")
{
    my $bytes = length encode_utf8($unit);
    my $id = 'b' x (65535 % $bytes) . $unit x (65535 / $bytes);
    is(statuses(@{ $web->push(item('ids', transactionId => $id)) }), 'queued', '65535 bytes are an id');
    is(($web->pop('ids', autoAck => 'true'))[0]{transactionId}, $id, 'that comes back whole');
    refused({ items => [ item('ids', transactionId => "b$id") ] },
        'items[0].transactionId is longer than 65535 bytes', '65536 are not');
}
for my $name (
    "'; DROP TABLE queen.queues; --", '"', '\\', '`', '$$', '%s%n', '..', 'a/b', ' a ', 'select',
    "\x{202e}abc", "e\x{301}", "\x{e9}", '#?&=+%2F', '{"a":1}')
{
    my $answer = $web->push(item($name, partition => $name, transactionId => $name))->[0];
    is("$answer->{status} $answer->{queueName} $answer->{transaction_id}",
        "queued $name $name", encode_utf8("a name like $name comes back in the answer"));
    my ($message) = $web->pop($name, partition => $name);
    is("$message->{partition} $message->{transactionId}", "$name $name", 'and to the consumer');
}
is(statuses(@{ $web->push(item('')) }), 'queued', 'a queue may be called nothing');

# Bad input. Nothing of such a request is stored.
refused('', 'bad body: unexpected end at byte 0', 'no body');
refused('{', 'bad body: unexpected end at byte 1', 'a body cut short');
refused('[]', 'bad body: an object was expected at byte 0', 'a body of another kind');
refused('{}', 'items is required and must be an array', 'no items');
refused('{"items":{}}', 'bad body: an array was expected at byte 9', 'items that are no array');
refused('{"items":null}', 'bad body: an array was expected at byte 9', 'no items, spelled out');
refused('{"items":[1]}', 'bad body: an object was expected at byte 10', 'an item that is no object');
refused('{"items":[],"items":[]}', 'items appears twice', 'items twice');
refused('{"items":[]} x', 'bad body: text after the value at byte 13', 'text after the body');
refused("{\"items\":[{\"queue\":\"\xff\",\"payload\":1}]}", 'bad body: invalid UTF-8 at byte 20', 'a body that is not UTF-8');
refused('{"items":[{"queue":"\ud800","payload":1}]}', 'bad body: lone surrogate at byte 20', 'a lone surrogate');
for (
    [ { payload => 1 }, 'queue is required' ],
    [ { queue => undef, payload => 1 }, 'queue must be a string' ],
    [ { queue => 5, payload => 1 }, 'queue must be a string' ],
    [ { queue => 'bad' }, 'payload is required' ],
    [ { queue => 'bad', partition => undef, payload => 1 }, 'partition must be a string' ],
    [ { queue => 'bad', partition => ['p'], payload => 1 }, 'partition must be a string' ],
    [ { queue => 'bad', partition => '', payload => 1 }, 'partition is empty' ],
    [ { queue => 'bad', transactionId => 1, payload => 1 }, 'transactionId must be a string' ],
    [ { queue => 'bad', transactionId => '', payload => 1 }, 'transactionId is empty' ],
  )
{
    my ($bad, $error) = @$_;
    refused({ items => [ item('bad'), $bad ] }, "items[1].$error", "refused: $error");
}
for my $field (qw(queue partition transactionId))
{
    for my $escape (qw(\u0000 \n \t \u001f \u007f))
    {
        my %fields = (queue => '"bad"', payload => 1, $field => qq("a$escape"));
        my $members = join ',', map { qq("$_":$fields{$_}) } sort keys %fields;
        refused(qq({"items":[{$members}]}), "items[0].$field holds a control character", "$escape in $field");
    }
    my $text = $field eq 'queue' ? '"queue":"bad"' : qq("queue":"bad","$field":"x");
    refused(qq({"items":[{"payload":1,$text,"$field":"y"}]}), "items[0].$field appears twice", "$field twice");
}
refused('{"items":[{"queue":"bad","payload":1,"pay\u006coad":2}]}', 'items[0].payload appears twice', 'payload twice');
is($queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = 'bad'}), 0, 'a refused request leaves nothing');

# As many items as the limit allows: the last one is read, one more is not.
{
    my $bad = '{"items":[' . ('{"queue":"bad","payload":1},' x 499999) . '{}';
    refused("$bad]}", 'items[499999].queue is required', '500,000 items');
    refused("$bad,{}]}", 'items[499999].queue is required', 'and the first fault counts');
    $bad =~ s/\{\}$/{"queue":"bad","payload":1},{}/;
    refused("$bad]}", 'items has more than 500000 elements', 'one item more');
}

# Size.
{
    my $big = '"' . 'x' x (9 * 1024 * 1024) . '"';
    my $items = join ',', map { qq({"queue":"big","payload":$_}) } 1, $big, 2;
    is(statuses(@{ $web->post('/api/v1/push', qq({"items":[$items]}))->{json} }),
        'queued queued queued', 'a payload larger than a segment is stored');
    ok($web->get('/api/v1/pop/queue/big')->{body} =~ /"data":1,.*"data":\Q$big\E,.*"data":2,/, 'whole and in its place');

    my $many = join ',', map { qq({"queue":"many","payload":$_}) } 1 .. 25000;
    my $response = $web->post('/api/v1/push', qq({"items":[$many]}));
    is(scalar(() = $response->{body} =~ /"status":"queued"/g), 25000, 'more messages than a segment holds are stored');
    my @popped = map {
        raw_payloads($web->get('/api/v1/pop/queue/many?batch=10000&autoAck=true')->{body})
    } 1 .. 3;
    is("@popped", "@{[ 1 .. 25000 ]}", 'in their order');

    my $small = $queen->start_frontend(args => [ '--max-body-bytes', 4096 ]);
    my $frame = length '{"items":[{"queue":"size","payload":""}]}';
    my $fits = '{"items":[{"queue":"size","payload":"' . 'x' x (4096 - $frame) . '"}]}';
    is(length $fits, 4096, 'a body of the limit');
    is($small->post('/api/v1/push', $fits)->{status}, 201, 'is taken');
    is_error($small->post('/api/v1/push', "$fits "), 413, 'request body too large', 'a byte more is not');
    my $chunked = sprintf "%x\r\n%s\r\n1\r\n \r\n0\r\n\r\n", length $fits, $fits;
    is_error($small->post('/api/v1/push', $chunked, 'Transfer-Encoding' => 'chunked'),
        413, 'request body too large', 'in chunks neither');
}

# A partition whose row another session holds does not delay others, not even those of the same
# request; and it fails alone when the lock stays.
{
    my $quick = $queen->start_frontend(args => [ '--lock-timeout', 300 ]);
    $web->push(map { item('locked', partition => $_) } qw(held free));
    $web->pop('locked', partition => $_, autoAck => 'true') for qw(held free);
    my $session = $queen->node->background_psql('postgres', on_error_stop => 1);
    my $lock = sub {
        $session->query_safe(q{BEGIN; SELECT FROM queen.log_partitions WHERE name = 'held' FOR UPDATE});
    };
    my @items = map { item('locked', partition => $_) } qw(held free held free);
    $lock->();
    my $connection = $web->connect;
    $connection->send('POST', '/api/v1/push', { items => \@items });
    wait_until(sub { $other->pop('locked', partition => 'free', autoAck => 'true') == 2 }, 'free messages are there');
    ok(!$connection->readable, 'V-92: the free partition has its messages while the other is held');
    $session->query_safe('COMMIT');
    is(statuses(@{ $connection->receive->{json} }), 'queued queued queued queued', 'V-92: which goes on after it');
    is(scalar($web->pop('locked', partition => 'held', autoAck => 'true')), 2, 'V-92: and lost nothing');

    $lock->();
    my $answer = $quick->push(@items);
    is(statuses(@$answer), 'failed queued failed queued', 'V-92: a lock that stays fails its own messages');
    like($answer->[0]{error}, qr/lock timeout/, 'V-92: with the reason');
    is_error($quick->post('/api/v1/push', { items => [ $items[0] ] }), 503,
        $answer->[0]{error}, 'a request of such messages only is 503');
    $session->query_safe('COMMIT');
    $session->quit;
    is(statuses(@{ $quick->push(@items) }), 'queued queued queued queued', 'and works when it is gone');
}

# An entry that makes the whole call fail does not take its neighbours with it.
{
    $web->push(map { item('poison', partition => $_) } qw(a b c));
    $queen->sql('ALTER TABLE queen.log_segments ADD CONSTRAINT poisoned CHECK (octet_length(blob) <= 900) NOT VALID');
    my $noise = join '', map { chr(33 + (($_ * 7919) ^ ($_ * $_ * 31)) % 90) } 1 .. 3000;
    my $answer = $web->push(map { item('poison', partition => $_, payload => $_ eq 'b' ? $noise : 1) } qw(a b c));
    is(statuses(@$answer), 'queued failed queued', 'V-92: an error in one entry fails that entry');
    like($answer->[1]{error}, qr/poisoned/, 'V-92: and says why');
    $queen->sql('ALTER TABLE queen.log_segments DROP CONSTRAINT poisoned');
    is(statuses(@{ $web->push(item('poison', partition => 'b')) }), 'queued', 'V-92: later ones are stored');
    is(scalar($web->pop('poison', partition => $_)), 2, 'V-92: each once') for qw(a b c);
}

$queen->finish;
