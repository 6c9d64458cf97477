# Encrypted queues: nothing of a payload is stored in clear, and whoever has the key reads it.
use strict;
use warnings;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error raw_payloads);
use Test::More;

my $queen = QueenTest->new('encryption');
my $dir = PostgreSQL::Test::Utils::tempdir;
my $key = 'feffe9928665731c6d6a8f9467308308' x 2;
append_to_file("$dir/key", "$key\n");
chmod 0600, "$dir/key" or die;
my ($true, $false) = (JSON::PP::true, JSON::PP::false);

my $web = $queen->start_frontend(env => { QUEEN_ENCRYPTION_KEY => $key });
my $second = $queen->start_frontend(args => [ '--encryption-key-file', "$dir/key", '--threads', 2 ]);
my $keyless = $queen->start_frontend;
my $stranger = $queen->start_frontend(env => { QUEEN_ENCRYPTION_KEY => '0' x 64 });

sub configure { my ($server, $queue, $on) = @_; return $server->post('/api/v1/configure', { queue => $queue, options => { encryptionEnabled => $on } }); }
sub push_raw
{
    my ($server, $queue, @payloads) = @_;
    my $items = join ',', map { qq({"queue":"$queue","partition":"p","payload":$_}) } @payloads;
    return $server->post('/api/v1/push', qq({"items":[$items]}));
}
sub statuses { my ($response) = @_; return join ' ', map { $_->{status} } @{ $response->{json} }; }
sub pop_all { my ($server, $queue, $group) = @_; return $server->get("/api/v1/pop/queue/$queue?batch=100&autoAck=true&subscriptionMode=all&consumerGroup=$group"); }
sub stored
{
    my ($queue) = @_;
    return $queen->sql(qq{
        SELECT string_agg(f.flags || ' ' || convert_from(f.payload, 'UTF8'), E'\n' ORDER BY s.base_offset, i)
          FROM queen.log_segments AS s
          JOIN queen.log_partitions AS p ON p.id = s.partition_id
          JOIN queen.queues AS q ON q.id = p.queue_id
         CROSS JOIN generate_series(0, (s.end_offset - s.base_offset)::int) AS i
         CROSS JOIN queen.log_frame(s.blob, i) AS f
         WHERE q.name = '$queue'});
}

# Who has no key can neither switch it on nor store anything.
is_error(configure($keyless, 'secret', $true), 400, 'this server has no encryption key', 'encryption without a key', invalid => 'encryptionEnabled');
is(configure($keyless, 'secret', $false)->{status}, 200, 'switching it off needs no key');
is(configure($web, 'secret', $true)->{json}{options}{encryptionEnabled}, $true, 'with a key it can be switched on');
my $response = push_raw($keyless, 'secret', '"in clear"');
is(statuses($response), 'failed', 'a front end without the key stores nothing there');
is($response->{json}[0]{error}, 'the queue is encrypted and this server has no key', 'and says why');
is(stored('secret'), '', 'really nothing');

# Bytes come back as they went in, whichever front end with the key is asked.
my @payloads = ('{"marker": "platypus-in-secret",  "n": 1.50e3}', '[]', '"\u00e4\ud83d\ude00"', 'null', '{"encrypted":"QQ==","iv":"QQ==","authTag":"QQ=="}', '"' . 'y' x 300_000 . '"');
is(statuses(push_raw($web, 'secret', @payloads)), join(' ', ('queued') x @payloads), 'a batch');
is(statuses(push_raw($second, 'secret', '"from the second"')), 'queued', 'through another front end');
for my $server ($web, $second)
{
    is_deeply([ raw_payloads(pop_all($server, 'secret', "g$server->{port}")->{body}) ], [ @payloads, '"from the second"' ], 'popped as pushed');
}
my @stored = split /\n/, stored('secret');
is(scalar(grep { /^4 \{"encrypted":"[A-Za-z0-9+\/]+=*","iv":"[A-Za-z0-9+\/]{22}==","authTag":"[A-Za-z0-9+\/]{22}=="\}$/ } @stored), 7, 'stored as envelopes, and flagged');
my %ivs = map { /"iv":"(.{16})/ ? ($1 => 1) : () } @stored;
is(scalar keys %ivs, 7, 'no nonce comes twice');

# Who lacks the key, or has another one, serves the envelope; the partition goes on.
for my $server ($keyless, $stranger)
{
    my @popped = raw_payloads(pop_all($server, 'secret', "g$server->{port}")->{body});
    is(scalar @popped, 7, 'without the right key everything is delivered');
    is(scalar(grep { /^\{"encrypted":"/ } @popped), 7, 'as it is stored');
}
is(pop_all($keyless, 'secret', "g$keyless->{port}")->{status}, 204, 'and passed');

# An object of that shape in a queue that is not encrypted is data.
push_raw($web, 'plain', $payloads[4], '"platypus-in-plain"');
is_deeply([ raw_payloads(pop_all($web, 'plain', 'g')->{body}) ], [ $payloads[4], '"platypus-in-plain"' ], 'an envelope that a client made up is data');
is((split /\n/, stored('plain'))[0], "0 $payloads[4]", 'and stored as such');

# Switched on under way: what is there stays as it is, what comes is encrypted, order is kept.
push_raw($web, 'later', '"before"');
configure($web, 'later', $true);
push_raw($_, 'later', '"after"') for $web, $second;
is_deeply([ map { substr $_, 0, 1 } split /\n/, stored('later') ], [ 0, 4, 4 ], 'from the next push on');
is_deeply([ raw_payloads(pop_all($web, 'later', 'g')->{body}) ], [ '"before"', '"after"', '"after"' ], 'both are read');

# Deduplication sees transaction ids, not payloads.
my $item = { queue => 'secret', partition => 'd', transactionId => 'once', payload => { a => 1 } };
is(statuses($web->post('/api/v1/push', { items => [$item] })), 'queued', 'a transaction id');
is(statuses($second->post('/api/v1/push', { items => [$item] })), 'duplicate', 'is a duplicate through another front end');
is(statuses($web->post('/api/v1/push', { items => [ $item, { %$item, transactionId => 'twice' } ] })), 'duplicate queued', 'next to a new one');

# A dead letter keeps the envelope.
{
    my $message = $web->get('/api/v1/pop/queue/secret/partition/d?consumerGroup=dead&subscriptionMode=all')->{json}{messages}[0];
    is_deeply($message->{data}, { a => 1 }, 'a message to bury');
    $web->post('/api/v1/ack', {
            transactionId => 'once', partitionId => $message->{partitionId}, leaseId => $message->{leaseId},
            consumerGroup => 'dead', status => 'dlq' });
    like($queen->sql(q{SELECT flags || convert_from(payload, 'UTF8') FROM queen.log_dlq WHERE consumer_group = 'dead'}),
        qr/^4\{"encrypted":"/, 'is filed encrypted');
    is_deeply($web->get('/api/v1/dlq?queue=secret')->{json}{messages}[0]{data}, { a => 1 }, 'and listed readable');
    ok($keyless->get('/api/v1/dlq?queue=secret')->{json}{messages}[0]{data}{encrypted}, 'without the key as it is');
}

# On disk. The control shows that clear text would be found.
$queen->sql('CHECKPOINT');
sub on_disk { my ($text) = @_; return system('grep', '-rqaF', $text, $queen->node->data_dir) == 0; }
ok(on_disk('platypus-in-plain'), 'clear text lies in the data directory or its WAL');
ok(!on_disk('platypus-in-secret'), 'an encrypted payload does not');
ok(!on_disk($key), 'nor does the key');

# A key that is none stops the start.
for my $case (
    [ 'odd digits', { QUEEN_ENCRYPTION_KEY => substr $key, 1 }, 'the encryption key is not 64 hex digits' ],
    [ 'no hex', { QUEEN_ENCRYPTION_KEY => 'x' x 64 }, 'the encryption key is not 64 hex digits' ],
    [ 'no file', { QUEEN_ENCRYPTION_KEY_FILE => "$dir/none" }, 'could not open the file of the encryption key' ],
    [ 'both', { QUEEN_ENCRYPTION_KEY => $key, QUEEN_ENCRYPTION_KEY_FILE => "$dir/key" }, 'encryption-key and encryption-key-file are both set' ])
{
    my ($name, $env, $expected) = @$case;
    local %ENV = (%ENV, %$env);
    my ($output, $error) = ('', '');
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check' ], '<', \undef, '>', \$output, '2>', \$error);
    is($? >> 8, 2, "$name stops the start");
    is($error, "queen-frontend: $expected\n", 'and is explained');
}
{
    chmod 0644, "$dir/key" or die;
    my ($output, $error) = ('', '');
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check', '--encryption-key-file', "$dir/key" ], '<', \undef, '>', \$output, '2>', \$error);
    is($error, "queen-frontend: the file of the encryption key can be read by others than its owner\n", 'an open key file stops the start');
}
unlike($web->log . $second->log, qr/feffe992/, 'no log names the key');
$queen->finish;
