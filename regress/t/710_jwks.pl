# Sets of keys: from a file, from a URL, when they change, and when they cannot be had.
use strict;
use warnings;
use IO::Socket::INET;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use QueenToken;
use Test::More;

my $queen = QueenTest->new('jwks', conf => "max_connections = 300\n");
my $dir = PostgreSQL::Test::Utils::tempdir;
my %reader = (role => 'read-only');
my @children;

# A web server that answers every request with what is in a file, and notes the request. While
# there is no such file it makes the client wait.
sub serve
{
    my ($name) = @_;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 20) or die $@;
    my $self = { file => "$dir/$name", url => 'http://127.0.0.1:' . $listener->sockport . '/keys' };
    my $pid = fork() // die "fork: $!";
    if ($pid)
    {
        push @children, $pid;
        close $listener;
        return $self;
    }
    $SIG{TERM} = 'DEFAULT';
    while (my $client = $listener->accept)
    {
        sysread $client, my $request, 65536;
        append_to_file("$self->{file}.log", $request =~ s/\r\n.*/\n/sr);
        select undef, undef, undef, 0.02 until -e $self->{file};
        print $client slurp_file($self->{file});
        close $client;
    }
    POSIX::_exit(0);
}
END { my $status = $?; kill 'KILL', @children if @children; $? = $status; }
sub answers { my ($server, $body, $status) = @_; rename QueenToken::spew("$server->{file}.new", "HTTP/1.1 @{[ $status || '200 OK' ]}\r\nConnection: close\r\n\r\n$body"), $server->{file}; return; }
sub requests { my ($server) = @_; return -e "$server->{file}.log" ? scalar(() = slurp_file("$server->{file}.log") =~ /^GET \/keys HTTP\/1.1$/mg) : 0; }
sub web
{
    my (%env) = @_;
    return $queen->start_frontend(args => [ '--threads', 1 ], env => { JWT_ENABLED => 'true', JWT_ALGORITHM => 'auto', %env });
}
sub status { my ($web, $token) = @_; return $web->get('/status', Authorization => $token)->{status}; }
sub error_of { my ($web, $token) = @_; return $web->get('/status', Authorization => $token)->{json}{error}; }

my %key = map { $_ => QueenToken::key($_, id => "id of $_ \x{e9}") } qw(RS256 ES256 ES384 ES512 EdDSA);
my $second = QueenToken::key('ES256', id => 'second');

# A file.
{
    my $file = QueenToken::spew("$dir/set.json", QueenToken::key_set(@key{qw(RS256 ES256 ES384 ES512 EdDSA)}, $second));
    my $web = web(JWT_JWKS_FILE => $file);
    is(status($web, $key{$_}->token(\%reader)), 200, "$_, by its id") for sort keys %key;
    is(status($web, $key{$_}->token(\%reader, "{\"alg\":\"$_\"}")), 200, "$_, without an id") for sort keys %key;
    is(status($web, $second->token(\%reader)), 200, 'the second key of its kind, by its id');
    is(error_of($web, $second->token(\%reader, '{"alg":"ES256"}')), 'bad token signature', 'without an id it is the first that counts');
    is(error_of($web, $second->token(\%reader, { kid => $key{ES256}{id} })), 'bad token signature', 'the id of another key');
    is(error_of($web, $key{RS256}->token(\%reader, { kid => $key{ES256}{id} })), 'unknown token key id', 'the id of a key of another kind');
    is(error_of($web, $key{RS256}->token(\%reader, { kid => $_ })), 'unknown token key id', "the id \"$_\"") for '', 'x', $key{RS256}{id} . ' ';

    my $old = $second->token(\%reader);
    QueenToken::spew($file, QueenToken::key_set($key{RS256}));
    kill 'HUP', $web->pid;
    wait_until(sub { status($web, $old) == 401 }, 'the file is read again');
    is(error_of($web, $old), 'unknown token key id', 'SIGHUP: a key that is gone verifies nothing, not even what was verified before');
    is(status($web, $key{RS256}->token(\%reader)), 200, 'one that stayed does');
    QueenToken::spew($file, '{"keys":[');
    kill 'HUP', $web->pid;
    wait_until(sub { $web->log =~ /could not reload the keys of tokens .*is not a JSON object/ }, 'the failure is logged');
    is(status($web, $key{RS256}->token(\%reader)), 200, 'a file that is broken changes nothing');

    my $other = web(JWT_JWKS_FILE => QueenToken::spew("$dir/kinds.json", QueenToken::key_set($key{RS256})));
    is(error_of($other, $key{ES256}->token(\%reader)), 'unknown token key id', 'a kind of which there is no key');
    QueenToken::spew("$dir/kinds.json", QueenToken::key_set($key{ES256}));
    kill 'HUP', $other->pid;
    wait_until(sub { status($other, $key{ES256}->token(\%reader)) == 200 }, 'SIGHUP: it counts once there is one');
    is(error_of($other, $key{RS256}->token(\%reader)), 'unknown token key id', 'and the other one no more');
}

# What a set's publisher says about a key counts.
{
    my $web = web(JWT_JWKS_FILE => QueenToken::spew("$dir/rules.json", QueenToken::key_set(
        QueenToken::key('RS256', id => 'small', bits => 1024)->jwk, { kty => 'XYZ' }, {}, { kty => 'EC', crv => 'P-256', x => 'AA', y => '!' },
        { kty => 'RSA', n => '', e => 'AQAB' }, $key{RS256}->jwk(kid => 'enc', use => 'enc'), $key{RS256}->jwk(kid => 'ops', key_ops => ['sign']),
        $key{RS256}->jwk(kid => 'ps', alg => 'PS256'), $key{RS256}->jwk(kid => 'verify', key_ops => [qw(sign verify)]),
        QueenToken::key('HS256', id => 'oct', secret => 'known to all who know the set')->jwk)), JWT_SECRET => 'another');
    my %expected = (enc => 401, ops => 401, ps => 401, verify => 200);
    is(status($web, $key{RS256}->token(\%reader, { kid => $_ })), $expected{$_}, "key $_") for sort keys %expected;
    my $ps = bless { %{ $key{RS256} }, algorithm => 'PS256', family => 'PS' }, 'QueenToken';
    is(status($web, $ps->token(\%reader, { kid => 'ps' })), 200, 'key ps, for PS256');
    is(error_of($web, QueenToken::key('HS256', id => 'oct', secret => 'known to all who know the set')->token({ role => 'admin' })),
        'bad token signature', 'a symmetric key of a set is no secret');
    for my $set ('', '{}', '{"keys":{}}', '{"keys":[],"keys":[]}', '[' x 100_000, '{"keys":[]}', '{"keys":[{"kty":"oct","k":"AAAA"}]}', QueenToken::key_set(map { $second->jwk } 1 .. 101))
    {
        my $said = '';
        local %ENV = (%ENV, JWT_ENABLED => 1, JWT_ALGORITHM => 'ES256', JWT_JWKS_FILE => QueenToken::spew("$dir/bad.json", $set));
        IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check' ], '2>', \$said, '>', \my $output);
        is($? >> 8, 2, 'a bad set stops the start: ' . substr $set, 0, 40);
        like($said, qr/^queen-frontend: jwt-jwks-file (?:is not a JSON object with an array "keys"|holds no key that verifies tokens|holds more than 100 keys)\n\z/, 'and says so');
    }
}

# A URL: keys that change. Servers for the next parts are started now, they take their time.
my $server = serve('rotating');
answers($server, QueenToken::key_set($key{ES256}));
my $rotating = web(JWT_JWKS_URL => $server->{url}, JWT_PUBLIC_KEY => $key{EdDSA}->pem);
my $late = serve('late');
answers($late, 'sorry', '503 Service Unavailable');
my $waiting = web(JWT_JWKS_URL => $late->{url});
{
    is(status($rotating, $key{ES256}->token(\%reader)), 200, 'a key of the set');
    is(status($rotating, $key{EdDSA}->token(\%reader, '{"alg":"EdDSA"}')), 200, 'the key in PEM, for a token without id');
    is(error_of($rotating, $key{EdDSA}->token(\%reader)), 'unknown token key id', 'but not for one with');

    my $started = time;
    my $before = requests($server);
    is(status($rotating, $second->token(\%reader, { kid => "guess $_" })), 401, "guess $_") for 1 .. 50;
    cmp_ok(requests($server) - $before, '<=', 1 + (time - $started) / 5, 'guesses make it fetch at most once in five seconds');

    is(error_of($waiting, $key{ES256}->token(\%reader)), 'the keys of tokens could not be fetched', 'while there never was a set');
    is(status($waiting, $key{ES256}->token(\%reader)), 500, 'that is the server\'s fault');
    is(status($waiting, 'x.y.z'), 401, 'and not that of what is no token');
    is($waiting->get('/health')->{status}, 200, 'health needs no token');
    like($waiting->log, qr/could not fetch the keys of tokens url="\S+" error="the answer's status is not 200"/, 'the log says why');

    my $old = $key{ES256}->token(\%reader);
    is(status($rotating, $old), 200, 'before the keys change');
    answers($server, QueenToken::key_set($second));
    answers($late, QueenToken::key_set($second));
    wait_until(sub { status($rotating, $second->token({ %reader, n => rand })) == 200 }, 'the new key is fetched');
    is(error_of($rotating, $old), 'unknown token key id', 'a token of the old one is not good any more');
    wait_until(sub { status($waiting, $second->token({ %reader, n => rand })) == 200 }, 'the set is there at last');
    pass('a set that was not there is fetched when it is');
}

# A request that comes while the keys are fetched waits for them; others do not.
{
    my $slow = serve('slow');
    my @connections;
    my $web = web(JWT_JWKS_URL => $slow->{url}, JWT_JWKS_TIMEOUT_MS => 60000);
    my $ask = sub {
        my ($token, $method, $path, $body) = @_;
        my $connection = $web->connect;
        $connection->send($method || 'GET', $path || '/status', $body, Authorization => $token);
        return $connection;
    };
    my @good = ($ask->($second->token(\%reader)), $ask->($second->token({ role => 'write-only', sub => 'me' }), 'POST', '/api/v1/push', { items => [ { queue => 'q', payload => 1 } ] }));
    my $bad = $ask->($key{ES256}->token(\%reader));
    my $gone = $ask->($second->token(\%reader));
    $gone->close;
    is($web->get('/health')->{status}, 200, 'others are served');
    is(error_of($web, 'x'), 'malformed token', 'or refused');
    ok(!$good[0]->readable && !$bad->readable, 'who needs the keys waits');
    answers($slow, QueenToken::key_set($second));
    is_deeply([ map { $_->receive->{status} } @good, $bad ], [ 200, 201, 401 ], 'and is answered when they are there');
    is(($queen->start_frontend->pop('q', subscriptionMode => 'all'))[0]{producerSub}, 'me', 'as if nothing had been');

    my $never = serve('never');
    $web = web(JWT_JWKS_URL => $never->{url}, JWT_JWKS_TIMEOUT_MS => 60000);
    my $last = $ask->($second->token(\%reader));
    is(error_of($web, 'x'), 'malformed token', 'it runs');
    kill 'TERM', $web->pid;
    is($last->receive->{status}, 503, 'SIGTERM: who waits is answered');
    is($web->wait_ended, 0, 'and the fetch does not hold up the end');
}

# Answers that are none.
for my $case (
    [ 'no JSON', 'hello', '200 OK', 'is not a JSON object with an array "keys"' ],
    [ 'too large', '{"keys":[]}' . ' ' x 1_100_000, '200 OK', 'the answer is larger than 1 MiB' ],
    [ 'moved', QueenToken::key_set($second), "302 Found\r\nLocation: file:///etc/passwd", "the answer's status is not 200" ],
    [ 'nothing in time', undef, undef, 'Timeout was reached' ])
{
    my ($name, $body, $status, $error) = @$case;
    my $bad = serve("bad $name");
    answers($bad, $body, $status) if defined $body;
    my $web = web(JWT_JWKS_URL => $bad->{url}, JWT_JWKS_TIMEOUT_MS => 300);
    is(status($web, $second->token(\%reader)), 500, "$name: no keys");
    like($web->log, qr/could not fetch the keys of tokens url="\S+" error="\Q$error\E"/ =~ s/"keys"/\\"keys\\"/r, 'and the reason in the log') if $error !~ /"/;
}

# https, with a certificate that must be good.
{
    my $port = PostgreSQL::Test::Cluster::get_free_port();
    QueenToken::openssl('', qw(req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=keys -addext),
        'subjectAltName=IP:127.0.0.1', '-keyout', "$dir/web.key", '-out', "$dir/web.crt");
    mkdir "$dir/www";
    QueenToken::spew("$dir/www/keys.json", QueenToken::key_set($second));
    my $child = fork() // die "fork: $!";
    if ($child == 0)
    {
        chdir "$dir/www";
        open STDOUT, '>', '/dev/null';
        open STDERR, '>&', \*STDOUT;
        exec('openssl', 's_server', '-accept', "127.0.0.1:$port", '-cert', "$dir/web.crt", '-key', "$dir/web.key", '-WWW') or POSIX::_exit(1);
    }
    push @children, $child;
    wait_until(sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") }, 'openssl listens');
    my $url = "https://127.0.0.1:$port/keys.json";
    is(status(web(JWT_JWKS_URL => $url, JWT_JWKS_CA_FILE => "$dir/web.crt"), $second->token(\%reader)), 200, 'https');
    my $stranger = web(JWT_JWKS_URL => $url);
    is(status($stranger, $second->token(\%reader)), 500, 'from nobody that we know, nothing is taken');
    like($stranger->log, qr/could not fetch the keys of tokens .*(?:certificate|SSL)/i, 'and the log says why');
}

$queen->finish;
