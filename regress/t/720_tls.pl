# TLS on the listener: everything as without, and the certificate's life. TLS to PostgreSQL.
use strict;
use warnings;
use IO::Socket::INET;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest 'wait_until';
use QueenToken;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir;

# Makes a certificate for a name and 127.0.0.1; returns the files of the certificate and its key.
sub certificate
{
    my ($name, @kind) = @_;
    QueenToken::openssl('', qw(req -x509 -nodes -days 2), @kind ? @kind : qw(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1),
        '-subj', "/CN=$name", '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', "$dir/$name.key", '-out', "$dir/$name.crt");
    chmod 0600, "$dir/$name.key";
    return ("$dir/$name.crt", "$dir/$name.key");
}
my ($crt, $key) = certificate('first');
my ($crt2, $key2) = certificate('second', qw(-newkey rsa:2048));
my ($server_crt, $server_key) = certificate('database');

my $queen = QueenTest->new('tls', conf => "ssl = on\nssl_cert_file = '$server_crt'\nssl_key_file = '$server_key'\n");
append_to_file($_, slurp_file("$dir/first." . ($_ =~ /(crt|key)$/)[0])) for "$dir/live.crt", "$dir/live.key";
my $web = $queen->start_frontend(may_fail => 1, args => [ '--threads', 1, '--tls-cert', "$dir/live.crt", '--tls-key', "$dir/live.key",
    '--body-timeout', 1000, '--max-body-bytes', 1_000_000 ]);
our $url = 'https://127.0.0.1:' . $web->port;

# curl with arguments (a body goes by a file, as it may be large); returns its exit code, the status and the body of the answer.
sub curl
{
    my ($path, @args) = @_;
    my ($output, $error) = ('', '');
    @args = map { length > 1000 ? '@' . QueenToken::spew("$dir/body", $_) : $_ } @args;
    IPC::Run::run([ 'curl', '-sS', '--max-time', $PostgreSQL::Test::Utils::timeout_default, '--cacert', "$dir/live.crt", '-w', '\n%{http_code}', @args, "$url$path" ],
        '<', \undef, '>', \$output, '2>', \$error);
    my ($body, $status) = $output =~ /^(.*)\n(\d+)\z/s;
    return ($? >> 8, $status, $body, $error);
}
sub get_json { my ($path, @args) = @_; return JSON::PP->new->decode((curl($path, @args))[2]); }
sub push_messages { return (curl('/api/v1/push', '-d', JSON::PP->new->encode({ items => \@_ })))[1]; }

wait_until(sub { (curl('/health'))[1] eq '200' }, 'it is healthy');
pass('TLS with a good certificate');
is((curl('/health', '--tlsv1.2', '--tls-max', '1.2'))[1], 200, 'TLS 1.2');
is((curl('/health', '--tlsv1.3'))[1], 200, 'TLS 1.3');
isnt((curl('/health', '--ciphers', 'DEFAULT@SECLEVEL=0', '--tls-max', $_))[0], 0, "no TLS $_") for '1.0', '1.1';
isnt((curl('/health', '--cacert', $crt2))[0], 0, 'a client that does not trust the certificate');

# The same server behind it.
{
    my $payload = 'x' x 900_000;
    is(push_messages(map { { queue => 'q', payload => $_ } } 1 .. 3), 201, 'a push');
    is(push_messages({ queue => 'large', payload => $payload }), 201, 'a large push');
    is(get_json('/api/v1/pop/queue/large?subscriptionMode=all')->{messages}[0]{data}, $payload, 'comes back in a large answer');
    is_deeply([ map { $_->{data} } @{ get_json('/api/v1/pop/queue/q')->{messages} } ], [ 1, 2, 3 ], 'a pop');
    my ($code, $status) = curl('/status', '-o', '/dev/null', map { ("$url/status", '-o', '/dev/null') } 1 .. 5);
    is($code, 0, 'several requests on a connection');
    is((curl('/api/v1/push', '-d', 'x' x 1_000_001))[1], 413, 'a body over the limit');
    for my $header ('Expect:', 'Transfer-Encoding: chunked')
    {
        my ($failed, $answer) = curl('/api/v1/push', '-H', 'Expect:', '-H', $header, '-d', 'x' x 16_000_000);
        is("$failed $answer", '0 413', "a body far over it that is sent at once, $header");
    }
    is((curl('/nowhere'))[1], 404, 'no such route');

    my $late = IPC::Run::start([ 'openssl', 's_client', '-quiet', '-connect', '127.0.0.1:' . $web->port ], '<pipe', \*IN, '>pipe', \*OUT, '2>', '/dev/null');
    syswrite IN, "POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    my $answer = do { local $/; <OUT> };
    like($answer, qr/^HTTP\/1.1 408 .*\{"error":"request took too long"\}\z/s, 'who is cut off is told in TLS');
    close IN;
    $late->finish;
}

# Waiting pops: answered, and dropped when the client leaves.
{
    my $poll = sub {
        my ($queue) = @_;
        return IPC::Run::start([ 'curl', '-sS', '--cacert', "$dir/live.crt", "$url/api/v1/pop/queue/$queue?wait=true&timeout=100000" ], '<', \undef, '>', \$_[1], '2>', '/dev/null');
    };
    my $parked = sub { return get_json('/metrics')->{queen}{parkedPops} == $_[0]; };
    my ($answer, $none) = ('', '');
    my $woken = $poll->('awaited', $answer);
    my $killed = $poll->('awaited-in-vain', $none);
    wait_until(sub { $parked->(2) }, 'two polls are parked');
    $killed->kill_kill;
    wait_until(sub { $parked->(1) }, 'a client that left is noticed');
    is(push_messages({ queue => 'awaited', payload => 'news' }), 201, 'a push');
    $woken->finish;
    is(JSON::PP->new->decode($answer)->{messages}[0]{data}, 'news', 'wakes a poll');
    is(push_messages({ queue => 'awaited-in-vain', payload => 1 }), 201, 'another push');
    is($queen->sql('SELECT count(*) FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id
                    WHERE q.name = \'awaited-in-vain\' AND c.worker_id IS NOT NULL'), 0, 'and nothing is leased for who left');
}

# Clients that do not speak TLS, or stop in the middle of it.
{
    my $plain = $web->connect;
    $plain->send('GET', '/health');
    unlike($plain->read_all, qr/healthy/, 'no answer in clear');
    my $hello = pack 'H*', '160301020001';
    for my $bytes ('', 'x', $hello, $hello . "\0" x 10_000)
    {
        my $broken = $web->connect;
        $broken->write($bytes);
        $broken->close;
    }
    my $half = $web->connect;
    $half->write($hello);
    $half->shutdown_write;
    $half->read_all;
    is((curl('/health'))[1], 200, 'they disturb nobody');
}

# The certificate is renewed.
sub replace { my ($from, $name) = @_; QueenToken::spew("$dir/new", slurp_file($from)); rename "$dir/new", "$dir/live.$name"; return; }
{
    my $subject = sub {
        my $text = QueenToken::openssl('', 's_client', '-connect', '127.0.0.1:' . $web->port);
        return $text =~ /subject=.*CN = (\w+)/ ? $1 : '';
    };
    is($subject->(), 'first', 'the first certificate');
    my $old = '';
    my $poll = IPC::Run::start([ 'curl', '-sS', '--cacert', $crt, "$url/api/v1/pop/queue/renewal?wait=true&timeout=100000" ], '<', \undef, '>', \$old);
    wait_until(sub { get_json('/metrics')->{queen}{parkedPops} == 1 }, 'a poll is parked');
    replace($crt2, 'crt');
    kill 'HUP', $web->pid;
    wait_until(sub { $web->log =~ /could not reload the certificate setting="tls-key" error="is not the key of the certificate"/ }, 'the error is logged');
    is($subject->(), 'first', 'half a renewal is none');
    replace($key2, 'key');
    kill 'HUP', $web->pid;
    wait_until(sub { $subject->() eq 'second' }, 'the second certificate is there');
    is((curl('/health'))[1], 200, 'SIGHUP renews the certificate');
    is(push_messages({ queue => 'renewal', payload => 1 }), 201, 'a push');
    $poll->finish;
    like($old, qr/"data":1/, 'and connections that exist go on');
}

# Tokens and TLS together; the warning of an open listener.
{
    my $secret = QueenToken::key('HS256');
    my $both = $queen->start_frontend(may_fail => 1, env => { JWT_ENABLED => 1, JWT_SECRET => $secret->{secret} },
        args => [ '--threads', 1, '--bind', '0.0.0.0', '--tls-cert', $crt, '--tls-key', $key ]);
    local $url = 'https://127.0.0.1:' . $both->port;
    wait_until(sub { (curl('/health', '--cacert', $crt))[1] eq '200' }, 'it is healthy');
    is((curl('/status', '--cacert', $crt))[1], 401, 'no token');
    is((curl('/status', '--cacert', $crt, '-H', 'Authorization: Bearer ' . $secret->token({ role => 'admin' })))[1], 200, 'a token');
    is((curl('/api/v1/push', '--cacert', $crt, '-d', 'x' x 900_000))[1], 401, 'a large body that is refused');
    is((curl('/api/v1/push', '--cacert', $crt, '-H', 'Expect:', '-d', 'x' x 16_000_000))[1], 401, 'a larger one that is sent at once');
    unlike($both->log, qr/without authentication/, 'a listener with tokens needs no warning');
}

# Files that do not do.
for my $case (
    [ 'tls-cert and tls-key go together', '--tls-cert', $crt ], [ 'tls-cert and tls-key go together', '--tls-key', $key ],
    [ 'tls-cert names a file that could not be opened', '--tls-cert', '/nowhere', '--tls-key', $key ],
    [ 'tls-key names a file that could not be opened', '--tls-cert', $crt, '--tls-key', '/nowhere' ],
    [ 'tls-cert holds no chain of certificates in PEM', '--tls-cert', $key, '--tls-key', $key ],
    [ 'tls-key holds no private key in PEM without a password', '--tls-cert', $crt, '--tls-key', $crt ],
    [ 'tls-key is not the key of the certificate', '--tls-cert', $crt, '--tls-key', $key2 ])
{
    my ($error, @args) = @$case;
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check', @args ], '>', \my $output, '2>', \my $said);
    is(($? >> 8) . $said, "2queen-frontend: $error\n", $error);
}

# TLS to PostgreSQL, in the words of other servers.
{
    my $node = $queen->node;
    $node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\n");
    $node->append_conf('pg_hba.conf', "hostssl all all 127.0.0.1/32 trust\n");
    $node->restart;
    my %tcp = (PGHOST => '127.0.0.1', PG_USE_SSL => 'true');
    my $encrypted = sub { return $queen->sql(q{SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr = '127.0.0.1'}); };
    for my $case ([ 'a file', $server_crt ], [ 'PEM', slurp_file($server_crt) ])
    {
        my $good = $queen->start_frontend(env => { %tcp, PG_SSL_ROOT_CERT => $case->[1] }, args => [ '--threads', 1 ]);
        is($encrypted->(), 't', "a certificate that is known, from $case->[0]");
        $good->stop;
    }
    $queen->start_frontend(env => { %tcp, PG_SSL_REJECT_UNAUTHORIZED => 'false' }, args => [ '--threads', 1 ])->stop;
    pass('a certificate that need not be known');
    for my $case ([ 'an unknown one', {} ], [ 'another one', { PG_SSL_ROOT_CERT => $crt } ])
    {
        my $stranger = $queen->start_frontend(env => { %tcp, %{ $case->[1] } }, args => [ '--threads', 1 ], may_fail => 1);
        wait_until(sub { $stranger->log =~ /certificate verify failed/ }, 'the certificate is refused');
        is($stranger->get('/health')->{status}, 503, "$case->[0] is refused");
        $stranger->stop;
    }
}

$queen->finish;
