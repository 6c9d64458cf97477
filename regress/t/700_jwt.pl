# Tokens: every algorithm, every way to be wrong, roles on every route, the subject of a push.
use strict;
use warnings;
use IPC::Run ();
use MIME::Base64 'encode_base64url';
use PostgreSQL::Test::Utils;
use QueenTest 'is_error';
use QueenToken;
use Test::More;

my $queen = QueenTest->new('jwt', conf => "max_connections = 300\n");
my @one_thread = (args => [ '--threads', 1 ]);
my %keys = map { $_ => QueenToken::key($_) } qw(HS256 HS384 HS512 RS256 ES256 ES384 ES512 EdDSA);
$keys{$_} = bless { %{ $keys{RS256} }, algorithm => $_, family => substr($_, 0, 2), size => substr($_, 2) }, 'QueenToken'
  for qw(RS384 RS512 PS256 PS384 PS512);

sub server
{
    my (%env) = @_;
    return $queen->start_frontend(@one_thread, env => { JWT_ENABLED => 'true', %env });
}
sub public_key { return JWT_PUBLIC_KEY => $_[0]->pem; }
sub answer { my ($web, $token, %headers) = @_; return $web->get('/status', Authorization => "Bearer $token", %headers); }
sub accepted
{
    my ($web, $token, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is(answer($web, $token)->{status}, 200, $name);
    return;
}
sub refused
{
    my ($web, $token, $error, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $response = answer($web, $token);
    is_error($response, 401, $error, $name);
    is($response->{headers}{'www-authenticate'}, 'Bearer', 'and asks for a token') if $name eq 'no token';
    return;
}
my %reader = (role => 'read-only');

# Each algorithm alone, against tokens of all the others.
for my $algorithm (sort keys %keys)
{
    my $key = $keys{$algorithm};
    my $web = server(JWT_ALGORITHM => $algorithm, $key->{family} eq 'HS' ? (JWT_SECRET => $key->{secret}) : public_key($key));
    my @taken = grep { answer($web, $keys{$_}->token(\%reader))->{status} == 200 } sort keys %keys;
    is_deeply(\@taken, $algorithm eq 'RS256' ? [qw(RS256 RS384 RS512)] : [$algorithm], "$algorithm takes its own tokens only");
    my $other = QueenToken::key($algorithm, secret => 'another secret');
    refused($web, $other->token(\%reader), 'bad token signature', "$algorithm: another key");
    my $token = $key->token(\%reader);
    my ($body, $signature) = $token =~ /^(.*\.)([^.]+)$/;
    refused($web, $body . join('', reverse split //, $signature), 'bad token signature', "$algorithm: another signature")
      if length($signature) % 4 == 0;
    refused($web, $body, 'bad token signature', "$algorithm: no signature");
    refused($web, $key->token({ role => 'admin' }) =~ s/[^.]*$/$signature/r, 'bad token signature', "$algorithm: the signature of another token");
    $web->stop;
}

# With auto, what there is a key for; and what is never taken.
my $web = server(JWT_ALGORITHM => 'auto', JWT_SECRET => $keys{HS256}{secret}, public_key($keys{RS256}));
accepted($web, $keys{$_}->token(\%reader), "auto takes $_") for qw(HS256 RS256 PS384);
refused($web, $keys{EdDSA}->token(\%reader), 'unsupported token algorithm', 'auto without such a key');
{
    my $pem = $keys{RS256}->pem;
    my $hs = $keys{HS256};
    my %confused = (PEM => $pem, 'PEM without its end' => $pem =~ s/\n\z//r, DER => $keys{RS256}->der);
    refused($web, QueenToken::key('HS256', secret => $confused{$_})->token({ role => 'admin' }), 'bad token signature',
        "the public key as a secret, in $_")
      for sort keys %confused;
    my ($head, $claims) = map { encode_base64url($_) } '{"alg":"none"}', '{"role":"admin"}';
    refused($web, "$head.$claims.", 'unsupported token algorithm', 'alg none');
    refused($web, encode_base64url($_) . ".$claims.", 'unsupported token algorithm', "header $_")
      for '{"alg":"NONE"}', '{"alg":"hs256"}', '{"alg":""}', '{"alg":"HS1"}', '{"alg":"A256KW"}';

    my $header = sub { return $hs->token(\%reader, $_[0]); };
    refused($web, $header->($_->[0]), $_->[1], 'header ' . substr $_->[0], 0, 60)
      for [ '{}', 'token header names no algorithm' ], [ '{"alg":1}', 'token header names no algorithm' ],
      [ '{"alg":null}', 'token header names no algorithm' ], [ '[]', 'malformed token header' ], [ 'x', 'malformed token header' ],
      [ '', 'malformed token header' ], [ '{"alg":"HS256"}x', 'malformed token header' ],
      [ '{"alg":"none","alg":"HS256"}', 'malformed token header' ], [ '{"alg":"HS256","kid":"a","kid":"b"}', 'malformed token header' ],
      [ '{"alg":"HS256\u0000"}', 'malformed token header' ], [ "{\"alg\":\"HS256\",\"x\":\"\xff\"}", 'malformed token header' ],
      [ '{"alg":"HS256","crit":["exp"],"exp":1}', 'token needs an extension that is not supported' ],
      [ '{"alg":"HS256","crit":[]}', 'token needs an extension that is not supported' ],
      [ '{"alg":"HS256","kid":7}', 'token key id is not a string' ],
      [ '[' x 5000, 'malformed token header' ];
    accepted($web, $header->($_), 'header ' . substr $_, 0, 60)
      for '{"alg":"HS256"}', ' {"alg":"HS256", "typ":7} ', '{"alg":"HS256","x":' . ('[' x 2000) . (']' x 2000) . '}',
      '{"alg":"\u0048S256","jwk":{"kty":"oct","k":"AAAA"},"jku":"http://127.0.0.1:1/","x5u":"http://127.0.0.1:1/","x5c":["x"]}';
}

# Where a token is looked for.
{
    my $token = $keys{HS256}->token(\%reader);
    my $get = sub { return $web->get('/status', Authorization => $_[0])->{status}; };
    is($get->($_), 200, "header \"$_\"") for map { s/TOKEN/$token/r } 'Bearer TOKEN', 'bearer TOKEN', 'BEARER  TOKEN', 'TOKEN';
    is($get->($_), 401, "header \"$_\"") for map { s/TOKEN/$token/r } 'Basic TOKEN', 'Bearer', 'Bearer ', 'BearerTOKEN', 'Bearer TOKEN x', 'Bearer "TOKEN"';
    is_error($web->get('/status'), 401, 'a token is required', 'no token');
    my $connection = $web->connect;
    $connection->write("GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: $token\r\nAuthorization: $token\r\n\r\n");
    is_error($connection->receive, 400, 'more than one Authorization', 'two headers');
    is($web->get("/status?access_token=$token")->{status}, 401, 'not in the query');

    $connection = $web->connect;
    for my $try ([ $token, 200 ], [ undef, 401 ], [ 'x', 401 ], [ $token, 200 ])
    {
        $connection->send('GET', '/status', undef, defined $try->[0] ? (Authorization => $try->[0]) : ());
        is($connection->receive->{status}, $try->[1], 'a connection carries no rights from one request to the next');
    }
}

# Bytes that are no token.
{
    my $token = $keys{HS256}->token(\%reader);
    my ($head, $claims, $signature) = split /\./, $token;
    refused($web, $_->[1], 'malformed token', $_->[0])
      for [ 'one part', 'x' ], [ 'two parts', "$head.$claims" ], [ 'four parts', "$token.x" ], [ 'five parts', "$head.$head.$head.$head.$head" ],
      [ 'padding', "$token=" ], [ 'a letter of other base64', "$head.$claims.+" . substr $signature, 1 ],
      [ 'a length that cannot be', "$head.${claims}A" x 1 . ".$signature" =~ s/^/length($claims) % 4 == 0 ? '' : 'A'/er ],
      [ 'dots', '..' x 1 . '.' ], [ 'no letters', '!.!.!' ];
    my $other = $signature;
    $other =~ s/(.)$/chr(ord($1) + 1)/e;    # the last digit holds four bits of the signature and two that must be zero
    refused($web, "$head.$claims.$other", 'malformed token', 'spare bits');
    refused($web, '..', 'malformed token header', 'empty parts');
    refused($web, 'x' x 8193, 'token too long', 'a long token');
    is(answer($web, 'x' x 8192)->{json}{error}, 'malformed token', 'at the limit it is looked at');
    is(answer($web, 'x' x 20000)->{status}, 431, 'a header that is too long for any request');
    accepted($web, $token, 'and the good token is still good');
}

# Claims.
{
    my $now = time;
    my $rules = server(JWT_SECRET => $keys{HS256}{secret}, JWT_ISSUER => 'me', JWT_AUDIENCE => 'queen', JWT_CLOCK_SKEW => 60);
    my $claims = sub { return $keys{HS256}->token(ref $_[0] ? { %reader, iss => 'me', aud => 'queen', %{ $_[0] } } : $_[0]); };
    accepted($rules, $claims->($_->[1]), $_->[0])
      for [ 'no times', {} ], [ 'a time ahead', { exp => $now + 100 } ], [ 'a time just past', { exp => $now - 50 } ],
      [ 'with a fraction', { exp => $now + 100.5 } ], [ 'far ahead', { exp => 9_000_000_000_000 } ], [ 'valid since', { nbf => $now } ],
      [ 'valid soon', { nbf => $now + 50 } ], [ 'just issued', { iat => $now + 50 } ], [ 'issued long ago', { iat => 0 } ],
      [ 'several audiences', { aud => [ 'other', 'queen' ] } ];
    refused($rules, $claims->($_->[1]), $_->[2], $_->[0])
      for [ 'expired', { exp => $now - 61 }, 'token has expired' ], [ 'expired at the epoch', { exp => 0 }, 'token has expired' ],
      [ 'before the epoch', { exp => -1 }, 'token has expired' ],
      [ 'not yet valid', { nbf => $now + 3600 }, 'token is not valid yet' ],
      [ 'issued in the future', { iat => $now + 3600 }, 'token was issued in the future' ],
      [ 'a time in quotes', { exp => "$now" }, 'token time is not a number' ],
      [ 'a time of true', { nbf => JSON::PP::true() }, 'token time is not a number' ],
      [ 'a time of null', { exp => undef }, 'token time is not a number' ],
      [ 'another issuer', { iss => 'you' }, 'token is from another issuer' ], [ 'no issuer', { iss => undef }, 'token is from another issuer' ],
      [ 'another audience', { aud => 'other' }, 'token is for another audience' ],
      [ 'other audiences', { aud => [ 'other', 'queens', [ 'queen' ] ] }, 'token is for another audience' ],
      [ 'a subject that is no text', { sub => 7 }, 'token subject is not a string' ],
      [ 'no object', '[]', 'malformed token claims' ], [ 'no JSON', 'x', 'malformed token claims' ], [ 'nothing', '', 'malformed token claims' ],
      [ 'a token in a token', $keys{HS256}->token({}), 'malformed token claims' ],
      [ 'a claim twice', '{"iss":"me","aud":"queen","role":"read-only","role":"admin"}', 'malformed token claims' ],
      [ 'a number out of range', '{"iss":"me","aud":"queen","exp":1e999}', 'malformed token claims' ],
      [ 'deep nesting', '[' x 5000, 'malformed token claims' ];

    # What was good and is remembered does not outlive its time.
    my $strict = server(JWT_SECRET => $keys{HS256}{secret}, JWT_CLOCK_SKEW => 0);
    my $short = $keys{HS256}->token({ %reader, exp => time + 2 });
    my $status = answer($strict, $short)->{status};
    QueenTest::wait_until(sub { answer($strict, $short)->{status} == 401 }, 'the token expires');
    is($status, 200, 'a token that expires is good before');
    refused($strict, $short, 'token has expired', 'and not after');
    accepted($strict, $keys{HS256}->token({ %reader, n => $_ }), "token $_ of many") for 1, 5000;
}

# Roles: every route at its level. The table of levels is the contract's, not the program's.
{
    my $level = sub {
        my ($method, $path) = @_;
        return 'PUBLIC' if $path =~ m{^/(?:health|metrics|metrics/prometheus|auth/.*|openapi\.json)?$};
        return 'ADMIN' if $path =~ m{^/(?:api/v1/system|internal)/} || "$method $path" =~ m{^DELETE /api/v1/(?:consumer-groups/|resources/queues/|dlq$)}
          || $path eq '/api/v1/stats/refresh';
        return 'READ_ONLY' if $method eq 'GET' && $path =~ m{^/(?:status|api/v1/(?:status|analytics|resources|messages|consumer-groups|dlq|traces))(?:/|$)}
          || $path eq '/streams/v1/state/get';
        return 'WRITE_ONLY' if $path eq '/api/v1/push';
        return 'READ_WRITE';
    };
    my %passes = (
        READ_ONLY => [qw(admin read-only read-write)], WRITE_ONLY => [qw(admin read-write write-only)],
        READ_WRITE => [qw(admin read-write)], ADMIN => [qw(admin)], PUBLIC => [qw(- admin nobody read-only read-write write-only)]);
    my %tokens = ('-' => undef, map { $_ => $keys{HS256}->token({ role => $_ }) } qw(admin read-write read-only write-only nobody));
    my $roles = server(JWT_SECRET => $keys{HS256}{secret});
    for my $route (QueenTest::routes())
    {
        my ($method, $path, $declared) = @$route;
        is($declared, $level->($method, $path), "$method $path is declared at its level");
        my $target = $path =~ s{:\w+}{00000000-0000-7000-8000-000000000000}gr;
        my @in = grep {
            my $response = $roles->request($method, $target, $method eq 'GET' ? undef : '[', $tokens{$_} ? (Authorization => $tokens{$_}) : ());
            my $code = $response->{status};
            die "$method $path, $_: $code" if $code == 405 || ($code == 404 && ($response->{json}{code} // '') eq 'no_such_route');
            is_error($response, 403, 'Insufficient permissions', "$method $path refuses $_") if $code == 403;
            $code != 401 && $code != 403;
        } sort keys %tokens;
        @in = @{ $passes{PUBLIC} } if $path eq '/auth/me';    # which always answers 401 here
        is_deeply(\@in, $passes{$declared}, "$method $path lets in who may") or diag "in: @in";
    }

    accepted($roles, $keys{HS256}->token($_->[1]), $_->[0])
      for [ 'one of several roles', { roles => [ 'x', 'read-only' ] } ], [ 'roles in both claims', { role => 'x', roles => ['admin'] } ];
    is(answer($roles, $keys{HS256}->token($_->[1]))->{status}, 403, $_->[0])
      for [ 'no role', {} ], [ 'an unknown role', { role => 'root' } ], [ 'a role in another case', { role => 'Admin' } ],
      [ 'a role that is no text', { role => { admin => 1 } } ], [ 'empty roles', { roles => [] } ], [ 'nested roles', { roles => [ ['admin'] ] } ];
    my $named = server(JWT_SECRET => $keys{HS256}{secret}, JWT_ROLES_CLAIM => 'r', JWT_ROLES_ARRAY_CLAIM => 'rr', JWT_ROLE_READ_ONLY => 'viewer');
    accepted($named, $keys{HS256}->token({ r => 'viewer' }), 'names of our own');
    accepted($named, $keys{HS256}->token({ rr => ['viewer'] }), 'in the array, too');
    is(answer($named, $keys{HS256}->token({ role => 'read-only', roles => ['viewer'] }))->{status}, 403, 'instead of the usual ones');

    # A refusal with a body: small ones are read, large ones are not.
    for my $size (10, 60_000)
    {
        is_error($roles->post('/api/v1/push', ' ' x $size), 401, 'a token is required', "a body of $size bytes");
    }
    my $large = $roles->connect;
    $large->send('POST', '/api/v1/push', '', 'Content-Length' => 10_000_000);
    is($large->receive->{status}, 401, 'nobody has to send what will be refused');
    my $chunked = $roles->connect;
    $chunked->send('POST', '/api/v1/push', '', 'Transfer-Encoding' => 'chunked');
    is($chunked->receive->{status}, 401, 'nor what has no length');
}

# Paths that need no token.
{
    my $skip = server(JWT_SECRET => $keys{HS256}{secret}, JWT_SKIP_PATHS => '/status, /api/v1/resources/queues/open/,/api/v1/dlq');
    my $get = sub { return $skip->get($_[0])->{status}; };
    isnt($get->($_), 401, "$_ is open") for '/status', '/status/', '/%73tatus', '/api/v1/resources/queues/open/x', '/api/v1/dlq?queue=x', '/health';
    is($get->($_), 401, "$_ is not") for '/api/v1/resources/queues/open', '/api/v1/resources/queues/open%2Fx', '/api/v1/resources/queues';
}

# The subject of who pushed.
{
    my $auth = server(JWT_SECRET => $keys{HS256}{secret}, JWT_SKIP_PATHS => '/api/v1/pop/');
    my $push = sub {
        my ($claims) = @_;
        my $response = $auth->post('/api/v1/push', { items => [ { queue => 'subject', payload => 1, producerSub => 'forged' } ] },
            Authorization => $keys{HS256}->token({ role => 'write-only', %$claims }));
        is($response->{status}, 201, 'a push');
    };
    my $long = 'x' x 5000;
    my @subjects = ('alice', "b\x{e9}la \"\\ \x{1f600}\n", $long, '', undef);
    $push->(defined $_ ? { sub => $_ } : {}) for @subjects;
    my @messages = QueenTest::Frontend::pop($auth, 'subject', batch => 10);
    is_deeply([ map { $_->{producerSub} } @messages ], [ @subjects[ 0 .. 2 ], undef, undef ], 'is in the message');
    is($queen->sql('SELECT count(*) FROM queen.log_dlq'), 0, 'no dead letter yet');
    my $dead = $auth->post('/api/v1/ack', { transactionId => $messages[1]{transactionId}, partitionId => $messages[1]{partitionId},
            leaseId => $messages[1]{leaseId}, status => 'dlq' }, Authorization => $keys{HS256}->token({ role => 'read-write' }));
    is($dead->{json}[0]{success}, JSON::PP::true(), 'one is dead-lettered');
    is($auth->get('/api/v1/dlq?queue=subject', Authorization => $keys{HS256}->token(\%reader))->{json}{messages}[0]{producerSub},
        $subjects[1], 'and in the dead letter');
    my $open = $queen->start_frontend(@one_thread);
    $open->push({ queue => 'nobody', payload => 1, producerSub => 'forged' });
    is(($open->pop('nobody', subscriptionMode => 'all'))[0]{producerSub}, undef, 'without tokens there is none');
    is($open->get('/status', Authorization => 'Bearer x')->{status}, 200, 'and a token is ignored');
}

# Who is using the server.
{
    my $open = $queen->start_frontend(@one_thread);
    my $me = $open->get('/auth/me')->{json};
    is_deeply([ @$me{qw(role standalone act_cluster_header)}, $me->{user}{id}, $me->{tenant}{slug}, scalar @{ $me->{clusters} } ],
        [ 'admin', JSON::PP::true(), 'x-queen-act-cluster', 'standalone', 'local', 1 ], 'without tokens, a local user');
    is($open->get('/auth/login')->{status}, 200, 'log in');
    is($open->post('/auth/logout', '')->{status}, 204, 'log out');
    my $token = $keys{HS256}->token({ role => 'admin' });
    is_error($web->get('/auth/me', Authorization => $token), 401, 'there are no sessions: send a token with each request', 'with tokens, nobody',
        code => 'auth_required');
    is($web->get('/auth/login')->{status}, 200, 'log in says how');
}

# Keys that do not do.
sub wrong
{
    my ($error, %env) = @_;
    local %ENV = (%ENV, JWT_ENABLED => 'true', %env);
    my ($output, $said);
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check' ], '<', \undef, '>', \$output, '2>', \$said);
    is($? >> 8, 2, 'it does not start');
    like($said, qr/^queen-frontend: \Q$error\E\n\z/m, 'and says why');
    return;
}
wrong('JWT_ALGORITHM: "none" is not one of HS256|HS384|HS512|RS256|RS384|RS512|PS256|PS384|PS512|ES256|ES384|ES512|EdDSA|auto', JWT_ALGORITHM => 'none');
wrong('JWT_ENABLED: "maybe" is neither true nor false', JWT_ENABLED => 'maybe');
wrong('jwt-algorithm is HS256, but there is no key for it: set jwt-secret');
wrong('jwt-algorithm is HS512, but there is no key for it: set jwt-secret', JWT_ALGORITHM => 'HS512', public_key($keys{RS256}));
wrong("jwt-algorithm is $_, but there is no key for it: set jwt-public-key, jwt-jwks-file or jwt-jwks-url", JWT_ALGORITHM => $_, JWT_SECRET => 'x')
  for qw(RS256 ES512 EdDSA);
wrong('jwt-algorithm is ES384, but there is no key for it: set jwt-public-key, jwt-jwks-file or jwt-jwks-url',
    JWT_ALGORITHM => 'ES384', public_key($keys{ES256}));
wrong('jwt-algorithm is auto, but there is no key for it: set jwt-public-key, jwt-jwks-file or jwt-jwks-url', JWT_ALGORITHM => 'auto');
wrong('jwt-public-key holds no public key or certificate in PEM', JWT_ALGORITHM => 'RS256', JWT_PUBLIC_KEY => "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n");
wrong('jwt-public-key names a file that could not be opened', JWT_ALGORITHM => 'RS256', JWT_PUBLIC_KEY => '/nowhere');
wrong('jwt-public-key holds a key of a type, curve or size that is not supported', JWT_ALGORITHM => 'RS256', public_key(QueenToken::key('RS256', bits => 1024)));
wrong('jwt-secret holds a key in PEM, which is not secret: set jwt-public-key', JWT_SECRET => $keys{RS256}->pem);
wrong('jwt-jwks-url is neither an http nor an https URL', JWT_ALGORITHM => 'RS256', JWT_JWKS_URL => 'file:///etc/passwd');
wrong('jwt-jwks-url and jwt-jwks-file are both set', JWT_ALGORITHM => 'RS256', JWT_JWKS_URL => 'http://x/', JWT_JWKS_FILE => '/x');
is(IPC::Run::run([ $ENV{QUEEN_FRONTEND}, '--check', '--jwt', 'true', '--jwt-secret', 'x' ], '>', \my $said), 1, 'a secret is enough');

$queen->finish;
