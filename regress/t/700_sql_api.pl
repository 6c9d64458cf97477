# The API in SQL and the HTTP interface are two doors to the same log: what goes in by one comes
# out by the other, with the same rules, the same wake-ups, and the same names.
use strict;
use warnings;
use utf8;
use Encode 'encode_utf8';
use FindBin;
use lib $FindBin::Bin;
use JSON::PP;
use QueenHistory;
use QueenTest 'wait_until', 'raw_payloads';
use Test::More;

my $queen = QueenTest->new('sqlapi');
my $node = $queen->node;
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);
$queen->sql('CREATE ROLE app LOGIN IN ROLE queen_app');

# Runs a query with the rights of an application.
sub app
{
    my ($query) = @_;
    return $node->safe_psql('postgres', $query, extra_params => [ '-U', 'app' ]);
}

sub quote { my ($text) = @_; $text =~ s/'/''/g; utf8::encode($text); return "'$text'"; }
sub parked { return $web->get('/metrics')->{json}{queen}{parkedPops}; }

# --- in by SQL, out by HTTP ---------------------------------------------------------------------

is(app(q{SELECT status FROM queen.push_many('q', ARRAY['{"n": 1.10}', 'null', '[]']::jsonb[], '{p,p,p}', '{a,b,c}')}),
    "queued\nqueued\nqueued", 'pushed in SQL');
my $response = $web->get('/api/v1/pop/queue/q/partition/p?batch=10');
is_deeply([ raw_payloads($response->{body}) ], [ '{"n": 1.10}', 'null', '[]' ], 'popped over HTTP with the text that jsonb gives');
my @messages = @{ $response->{json}{messages} };
is(join(',', map { $_->{transactionId} } @messages), 'a,b,c', 'in order');
is(join(',', map { $_->{producerSub} // 'none' } @messages), 'none,none,none', 'without a subject');

# One cursor, one lease: what one door has leased the other one acknowledges.
is(app("SELECT count(*) FROM queen.pop('q', partition => 'p')"), '0', 'leased over HTTP is leased in SQL');
is(app("SELECT queen.ack('$messages[0]{partitionId}', 'b', '$messages[0]{leaseId}')"), 'f', 'acknowledged in SQL');
is($web->ack('completed', $messages[2])->[0]{leaseReleased}, JSON::PP::true, 'and the rest over HTTP');

# --- in by HTTP, out by SQL ---------------------------------------------------------------------

my @payloads = ('{"z":1,"a":[1,2]}', '"\u0000"', '1e999999', '{"a":1,"a":2}', '"ü€😀"', '12345678901234567890123456789.5');
$web->post('/api/v1/push', encode_utf8('{"items":[' . join(',', map { qq({"queue":"h","partition":"p","transactionId":"t$_","payload":$payloads[$_]}) } 0 .. $#payloads) . ']}'));
is(app("SELECT transaction_id, payload, payload_text FROM queen.pop('h', batch => 10) ORDER BY message_offset"),
    encode_utf8(join "\n", 't0|{"a": [1, 2], "z": 1}|', 't1||"\u0000"', 't2||1e999999', 't3|{"a": 2}|', 't4|"ü€😀"|', 't5|12345678901234567890123456789.5|'),
    'popped in SQL; what jsonb cannot hold comes as text');
is($web->get('/api/v1/pop/queue/h/partition/p')->{status}, 204, 'leased in SQL is leased over HTTP');

# V-10: a duplicate is one whichever way the original came, and names it.
my $first = $web->push({ queue => 'd', partition => 'p', transactionId => 'x', payload => 1 })->[0];
is(app("SELECT status, message_id FROM queen.push('d', '2', 'p', 'x')"), "duplicate|$first->{message_id}", 'V-10: a duplicate in SQL of a push over HTTP');
my $second = app("SELECT message_id FROM queen.push('d', '2', 'p', 'y')");
is(join('|', @{ $web->push({ queue => 'd', partition => 'p', transactionId => 'y', payload => 1 })->[0] }{qw(status message_id)}),
    "duplicate|$second", 'V-10: and the other way round');

# --- wake-ups -----------------------------------------------------------------------------------

# V-35: a pop that waits over HTTP is answered by a push in SQL, after its commit.
my $waiter = $web->connect;
$waiter->send('GET', '/api/v1/pop/queue/wake?wait=true&timeout=300000');
wait_until(sub { parked() == 1 }, 'a pop waits');
my $session = $node->background_psql('postgres', extra_params => [ '-U', 'app' ]);
$session->query_safe(q{BEGIN; SELECT queen.push('wake', '"soon"', 'p')});
app(q{SELECT queen.push('other', '1')});
ok(!$waiter->readable, 'a push in SQL is not seen before its commit');
$session->query_safe('COMMIT');
is($waiter->receive->{json}{messages}[0]{data}, 'soon', 'V-35: and wakes the waiting pop by it');

# A lease that SQL gives back does so as well, by a nack or by a rollback.
app(q{SELECT queen.push('back', '1', 'p', 'b1')});
my ($part, $lease) = split /\|/, app(q{SELECT partition_id, lease_id FROM queen.pop('back')});
$waiter->send('GET', '/api/v1/pop/queue/back?wait=true&timeout=300000');
wait_until(sub { parked() == 1 }, 'a pop waits');
app("SELECT queen.nack('$part', 'b1', '$lease', status => 'retry')");
my $again = $waiter->receive->{json}{messages}[0];
is("$again->{transactionId} $again->{deliveryAttempt}", 'b1 2', 'a nack in SQL wakes the waiting pop');
$web->ack('completed', $again);

app(q{SELECT queen.push('back', '1', 'p', 'b2')});
$session->query_safe(q{BEGIN; SELECT queen.pop('back')});
is($web->get('/api/v1/pop/queue/back')->{status}, 204, 'a batch popped in an open transaction is nobody else\'s');
$waiter->send('GET', '/api/v1/pop/queue/back?wait=true&timeout=300000');
wait_until(sub { parked() == 1 }, 'a pop waits');
$session->query_safe('ROLLBACK');
is($waiter->receive->{json}{messages}[0]{transactionId}, 'b2', 'a rollback gives it to the waiting pop');

# --- a crash in the middle of a transaction -----------------------------------------------------

app(q{SELECT queen.push('crash', '1', 'p', 'c1')});
$session->query_safe(q{BEGIN; SELECT queen.pop('crash'); SELECT queen.push('crash', '2', 'p', 'c2'); SELECT queen.push('born', '1')});
$session->query_safe(q{SAVEPOINT s; SELECT queen.push('crash', '2', 'p', 'c3'); RELEASE s});
$node->stop('immediate');
eval { $session->quit };
$node->start;
wait_until(sub { $web->get('/health')->{status} == 200 }, 'the front end is back');
is($queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = 'born'}), '0', 'V-05: a crash leaves nothing of an open transaction');
is(app(q{SELECT transaction_id, attempt FROM queen.pop('crash', batch => 10)}), 'c1|1', 'V-05: and the lease it held is free');
is(app(q{SELECT status FROM queen.push('crash', '2', 'p', 'c2')}), 'queued', 'its transaction ids are free as well');

# --- names --------------------------------------------------------------------------------------

# Queue, partition, group and transaction id of the same hostile name, in by one door and out by
# the other, and what it looks like as a dead letter.
my @names = (
    'x', 'n' x 255, "\x{1F600}" x 255, q{a'b"c''d}, '; DROP TABLE queen.queues; --', '$$ $1 $x$', '%s%n%d%00', 'a\\b\\n', '`id`',
    "\x{202E}abc\x{202C}", "gr\x{FC}\x{DF}", "gru\x{308}\x{DF}", '  x  ', ' ', '..', 'a/b', 'a?b=c&d#e', '%2F', '+', 'select',
    'queen.log_partitions', '{a,b}', 'NULL', "\x{A0}", '<b>&amp;');
for my $name (@names)
{
    my $shown = encode_utf8(length $name > 20 ? substr($name, 0, 8) . '...' : $name);
    my $sql = quote($name);
    my $stored = $web->push({ queue => $name, partition => $name, transactionId => $name, payload => $name })->[0];
    is($stored->{status}, 'queued', "$shown: pushed over HTTP");
    is(app("SELECT status, message_id FROM queen.push($sql, '2', $sql, $sql)"), "duplicate|$stored->{message_id}", "$shown: the same in SQL");
    my ($same, $id, $lease_id) = split /\|/, app(<<"SQL");
SELECT (transaction_id, partition, consumer_group, payload) = ($sql, $sql, $sql, to_jsonb($sql\::text)), partition_id, lease_id
  FROM queen.pop($sql, $sql, $sql, subscription_mode => 'all')
SQL
    is($same, 't', "$shown: popped in SQL");
    is(app("SELECT queen.nack('$id', $sql, '$lease_id', $sql, $sql, 'dlq')"), 't', "$shown: a dead letter by SQL");
    my $letter = $web->get('/api/v1/dlq?queue=' . QueenTest::Frontend::escape($name))->{json}{messages}[0];
    is_deeply([ @$letter{qw(queue partition consumerGroup transactionId errorMessage data)} ], [ ($name) x 6 ], "$shown: seen over HTTP");
    my ($message) = $web->pop($name, partition => $name, consumerGroup => "$name", subscriptionMode => 'all');
    is($message, undef, "$shown: and passed by its group");
    is(app("SELECT queen.delete_queue($sql)"), 't', "$shown: deleted in SQL");
}

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
