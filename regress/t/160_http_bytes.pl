# Requests as bytes: what is ambiguous is refused, what is split or pipelined works all the same,
# and slow, vanishing and countless clients do no harm.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Socket qw(IPPROTO_TCP TCP_NODELAY SOL_SOCKET SO_LINGER);
use Test::More;

my $queen = QueenTest->new('bytes', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend(args => [ '--max-body-bytes', 1048576 ]);

sub open_files { return scalar(() = glob '/proc/' . $web->pid . '/fd/*'); }
sub count { return $queen->sql("SELECT coalesce(sum(last_offset + 1), 0) FROM queen.log_partitions p
                                JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = '$_[0]'"); }
is($web->get('/status')->{status}, 200, 'it runs');
my $files = open_files();

my $body = '{"items":[]}';
my $length = length $body;
my $chunks = sprintf "%x\r\n%s\r\n0\r\n\r\n", $length, $body;
sub post { my ($headers, $bytes) = @_; return "POST /api/v1/push HTTP/1.1\r\nHost: x\r\n$headers\r\n$bytes"; }
sub chunked { return post("Transfer-Encoding: chunked\r\n", $_[0]); }
sub get { my ($headers, $target) = @_; return 'GET ' . ($target // '/status') . " HTTP/1.1\r\n$headers\r\n"; }
sub headers { my ($n) = @_; return join '', "Host: x\r\n", map { "X-$_: y\r\n" } 2 .. $n; }
# A header block of so many bytes, without the empty line at its end.
sub header_block { my ($size) = @_; return "Host: x\r\nX: " . 'y' x ($size - 14) . "\r\n"; }

# Status, error text, and whether the connection goes on: another request tells.
sub outcome
{
    my ($connection) = @_;
    my $response = eval { $connection->receive } or return 'no answer, closed';
    my $error = $response->{json} && ref $response->{json} eq 'HASH' && $response->{json}{error};
    my $next = $connection->write(get("Host: x\r\n")) && eval { $connection->receive };
    return join ', ', $response->{status}, $error || (), $next ? 'open' : 'closed';
}

# Each case arrives in one piece, then byte by byte.
my @cases = (
    [ 'Content-Length', post("Content-Length: $length\r\n", $body), '201, open' ],
    [ 'leading zero', post("Content-Length: 0$length\r\n", $body), '201, open' ],
    [ 'two different lengths', post("Content-Length: $length\r\nContent-Length: 5\r\n", $body),
        '400, more than one Content-Length, closed' ],
    [ 'two equal lengths', post("Content-Length: $length\r\nContent-Length: $length\r\n", $body),
        '400, more than one Content-Length, closed' ],
    (map { [ "Content-Length '$_'", post("Content-Length: $_\r\n", $body), '400, closed' ] }
        "$length, $length", "+$length", '-1', '0xc', '1 2', '12a', ''),
    [ 'length beyond 64 bits', post("Content-Length: 18446744073709551621\r\n", $body), '413, closed' ],
    [ 'length beyond 63 bits', post("Content-Length: 9223372036854775808\r\n", $body),
        '413, request body too large, closed' ],
    [ 'length beyond the limit', post("Content-Length: 1048577\r\n", ''), '413, request body too large, closed' ],
    [ 'length and chunks', post("Content-Length: $length\r\nTransfer-Encoding: chunked\r\n", $chunks),
        '400, Content-Length beside Transfer-Encoding, closed' ],
    [ 'chunks and length', post("Transfer-Encoding: chunked\r\nContent-Length: $length\r\n", $chunks),
        '400, Content-Length beside Transfer-Encoding, closed' ],
    [ 'unknown coding and length', post("Transfer-Encoding: xchunked\r\nContent-Length: $length\r\n", $body),
        '400, Content-Length beside Transfer-Encoding, closed' ],
    (map { [ "Transfer-Encoding $_", post("Transfer-Encoding: $_\r\n", $chunks), '400, Transfer-Encoding is not chunked, closed' ] }
        'xchunked', 'chunked, identity', 'identity', 'gzip, chunked', "\x0bchunked"),
    [ 'two codings', post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", $chunks),
        '400, more than one Transfer-Encoding, closed' ],
    [ 'chunks in HTTP/1.0', "POST /api/v1/push HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n$chunks",
        '400, Transfer-Encoding before HTTP/1.1, closed' ],
    [ 'chunks', chunked($chunks), '201, open' ],
    [ 'coding in capitals', post("Transfer-Encoding: CHUNKED\r\n", $chunks), '201, open' ],
    [ 'a chunk per byte', chunked(join '', (map { "1\r\n$_\r\n" } split //, $body), "0\r\n\r\n"), '201, open' ],
    [ 'chunk extension', chunked("c;a=b\r\n$body\r\n0\r\n\r\n"), '201, open' ],
    [ 'trailer', chunked("c\r\n$body\r\n0\r\nX-A: b\r\nContent-Length: 5\r\n\r\n"), '201, open' ],
    (map { [ "chunk size '$_'", chunked("$_\r\n$body\r\n0\r\n\r\n"), '400, closed' ] } '0xc', '-c', '+c', ' c', 'c ', 'g', ''),
    [ 'chunk size beyond 64 bits', chunked("ffffffffffffffffff\r\n$body\r\n0\r\n\r\n"), '413, closed' ],
    [ 'no line end after a chunk', chunked("c\r\n${body}0\r\n\r\n"), '400, closed' ],
    [ 'space before the colon', post("Content-Length : $length\r\n", $body), '400, header name is not a token, closed' ],
    [ 'space in a name', get("Host: x\r\na b: c\r\n"), '400, header name is not a token, closed' ],
    [ 'folded first header', get(" x: y\r\nHost: x\r\n"), '400, header name is not a token, closed' ],
    [ 'bracket in a name', get("Host: x\r\na(b): c\r\n"), '400, header name is not a token, closed' ],
    [ 'NUL in a name', get("Host: x\r\na\0b: c\r\n"), '400, closed' ],
    [ 'no colon', get("Host: x\r\nabc\r\n"), '400, closed' ],
    [ 'bare CR in a value', get("Host: x\r\na: b\rc\r\n"), '400, header value holds a line break, closed' ],
    [ 'no Host', get(''), '400, exactly one Host header is required, closed' ],
    [ 'two Hosts', get("Host: x\r\nHost: x\r\n"), '400, exactly one Host header is required, closed' ],
    [ 'no Host in HTTP/1.0', "GET /status HTTP/1.0\r\n\r\n", '200, closed' ],
    [ 'HTTP/1.0 kept alive', "GET /status HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", '200, open' ],
    [ 'HTTP/1.2', "GET /status HTTP/1.2\r\nHost: x\r\n\r\n", '200, open' ],
    [ 'HTTP/3.0', "GET /status HTTP/3.0\r\nHost: x\r\n\r\n", '505, closed' ],
    [ 'HTTP/2 preface', "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", '505, closed' ],
    [ 'HTTP/0.9', "GET /status\r\n\r\n", '400, closed' ],
    (map { [ "version $_", "GET /status $_\r\nHost: x\r\n\r\n", '400, closed' ] } 'HTTP/1', 'HTTP/1.1x', 'FTP/1.1'),
    [ 'lower-case method', "get /status HTTP/1.1\r\nHost: x\r\n\r\n", '405, Method Not Allowed, open' ],
    [ 'unknown method', "BREW /status HTTP/1.1\r\nHost: x\r\n\r\n", '405, Method Not Allowed, open' ],
    [ 'CONNECT', "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", '404, Not Found, open' ],
    [ 'space before the method', ' ' . get("Host: x\r\n"), 'no answer, closed' ],
    [ 'tabs in the request line', "GET\t/status\tHTTP/1.1\r\nHost: x\r\n\r\n", 'no answer, closed' ],
    (map { [ 'target ' . s/([^!-~])/sprintf '<%02x>', ord $1/ger, get("Host: x\r\n", $_),
            '400, the request target holds a space or a control character, closed' ] } '/sta tus', '/status ', "/sta\x0btus", "/sta\x7ftus"),
    [ 'empty lines before a request', "\r\n\r\n" . get("Host: x\r\n"), '200, open' ],
    [ 'absolute form', get("Host: x\r\n", 'http://queen.example:80/status?a=b'), '200, open' ],
    [ 'absolute form without a path', get("Host: x\r\n", 'http://queen.example'), '404, Not Found, open' ],
    [ 'no slash', get("Host: x\r\n", 'status'), '404, Not Found, open' ],
    [ 'asterisk', "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", '404, Not Found, open' ],
    [ 'dot segments', get("Host: x\r\n", '/api/../status'), '404, Not Found, open' ],
    [ 'encoded dot segments', get("Host: x\r\n", '/api/%2e%2e/status'), '404, Not Found, open' ],
    [ 'two slashes', get("Host: x\r\n", '//status'), '404, Not Found, open' ],
    [ 'slash at the end', get("Host: x\r\n", '/status/'), '200, open' ],
    [ 'encoded letter', get("Host: x\r\n", '/%73tatus'), '200, open' ],
    [ 'doubly encoded letter', get("Host: x\r\n", '/%2573tatus'), '404, Not Found, open' ],
    [ 'encoded slashes', get("Host: x\r\n", '/api%2Fv1%2Fdlq'), '404, Not Found, open' ],
    [ 'encoded NUL', get("Host: x\r\n", '/status%00'), '404, Not Found, open' ],
    [ 'half an escape', get("Host: x\r\n", '/status%4'), '404, Not Found, open' ],
    [ 'no escape', get("Host: x\r\n", '/status%zz'), '404, Not Found, open' ],
    [ 'no escape in the query', get("Host: x\r\n", '/status?a=%'), '400, bad percent-encoding in the query, closed' ],
    [ '16 parameters', get("Host: x\r\n", '/status?' . join '&', map { "a$_=1" } 1 .. 16), '200, open' ],
    [ '17 parameters', get("Host: x\r\n", '/status?' . join '&', map { "a$_=1" } 1 .. 17),
        '400, too many query arguments, closed' ],
    [ '11 segments', get("Host: x\r\n", '/a' x 11), '400, too many path segments, closed' ],
    [ '100 headers', get(headers(100)), '200, open' ],
    [ '101 headers', get(headers(101)), '431, more than 100 headers, closed' ],
    [ '5000 headers', get(headers(5000)), '431, closed' ],
    [ 'a header block of 16 KiB', get(header_block(16384)), '200, open' ],
    [ 'a byte more', get(header_block(16385)), '431, header block over 16 KiB, closed' ],
    [ 'a header block of 64 KiB', get(header_block(65536)), '431, closed' ],
    [ 'a target of 16 KB', get("Host: x\r\n", '/' . 'a' x 16000), '404, Not Found, open' ],
    [ 'a target of 64 KB', get("Host: x\r\n", '/' . 'a' x 64000), '414, closed' ],
    [ 'Expect', post("Expect: 100-continue\r\nContent-Length: $length\r\n", $body), '201, open' ],
    [ 'Expect too much', post("Expect: 100-continue\r\nContent-Length: 1048577\r\n", ''), '413, request body too large, closed' ],
    [ 'compressed body', post("Content-Encoding: gzip\r\nContent-Length: $length\r\n", $body),
        '415, compressed bodies are not supported, closed' ],
    [ 'identity body', post("Content-Encoding: identity\r\nContent-Length: $length\r\n", $body), '201, open' ],
    [ 'POST without a body', post('', ''), '400, bad body: unexpected end at byte 0, open' ],
    [ 'GET with a body', get("Host: x\r\nContent-Length: 4\r\n") . 'body', '200, open' ],
    [ 'Connection: close', get("Host: x\r\nConnection: close\r\n"), '200, closed' ],
    [ 'Upgrade', get("Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"), '200, open' ],

    # What the library does not show; see guard.h.
    [ 'NUL in a value', get("Host: x\r\na: b\0c\r\n"), '200, open' ],
    [ 'folded header', get("Host: x\r\na: b\r\n c\r\n"), '200, open' ],
    [ 'bare LF', "GET /status HTTP/1.1\nHost: x\n\n", '200, open' ],
    [ 'bare LF between chunks', chunked("c\n$body\n0\n\n"), '201, open' ],
    [ 'header without a name', get("Host: x\r\n: y\r\n"), '200, open' ]);
for (@cases)
{
    my ($name, $bytes, $expected) = @$_;
    my $connection = $web->connect;
    $connection->write($bytes);
    is(outcome($connection), $expected, $name);
    $connection = $web->connect;
    setsockopt $connection->{socket}, IPPROTO_TCP, TCP_NODELAY, 1;
    for my $byte (split //, $bytes) { $connection->write($byte) or last }
    is(outcome($connection), $expected, "$name, byte by byte");
}
my $huge = 16_777_216;    # more than sockets hold
for ([ 'length', "Content-Length: $huge\r\n", 'x' x $huge ],
    [ 'chunks', "Transfer-Encoding: chunked\r\n", sprintf "%x\r\n%s\r\n0\r\n\r\n", $huge, 'x' x $huge ])
{
    my ($name, $headers, $bytes) = @$_;
    my $connection = $web->connect;
    ok($connection->write(post($headers, $bytes)), "a body over the limit, $name: the client can send it all");
    is(outcome($connection), '413, request body too large, closed', "a body over the limit, $name: the client learns why");
}

# An answer to HEAD has the headers of GET.
{
    my $connection = $web->connect;
    $connection->write("HEAD /status HTTP/1.1\r\nHost: x\r\n\r\n" x 2);
    my ($first, $second) = map { $connection->receive('no body') } 1 .. 2;
    is("$first->{status} $second->{status}", '200 200', 'HEAD');
    is($first->{headers}{'content-length'}, length $web->get('/status')->{body}, 'says how long the body would be');
}

# Expect: the body is asked for when it is wanted.
{
    my $connection = $web->connect;
    $connection->write(post("Expect: 100-continue\r\nContent-Length: $length\r\n", ''));
    wait_until(sub { $connection->readable && $connection->fill }, 'the body is asked for');
    is($connection->{buffer}, "HTTP/1.1 100 Continue\r\n\r\n", 'a client that waits for it is told to go on');
    $connection->write($body);
    is($connection->receive->{status}, 201, 'and then answered');
}

# Pipelining.
{
    my $connection = $web->connect;
    my @items = map { qq({"items":[{"queue":"pipe","payload":$_}]}) } 1 .. 3;
    $connection->write(join '',
        (map { post('Content-Length: ' . length($_) . "\r\n", $_) } @items),
        get("Host: x\r\n", '/api/v1/pop/queue/pipe'), get("Host: x\r\n", '/nowhere'),
        get("Host: x\r\n", '/api/v1/pop/queue/pipe?wait=true&timeout=30000&consumerGroup=g'), get("Host: x\r\n"));
    my @answers = map { $connection->receive } 1 .. 5;
    is(join(' ', map { $_->{status} } @answers), '201 201 201 200 404', 'pipelined requests are answered in order');
    is(join(' ', map { $_->{data} } @{ $answers[3]{json}{messages} }), '1 2 3', 'and done in order');
    wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1 }, 'the poll is parked');
    ok(!$connection->readable, 'what comes after a parked poll waits');
    $web->push({ queue => 'pipe', payload => 4 });
    is(join(' ', map { $connection->receive->{status} } 1 .. 2), '200 200', 'for its answer');

    for (1 .. 10)
    {
        $connection->write(get("Host: x\r\n") x 1000);
        $connection->receive->{status} == 200 or die 'a request failed' for 1 .. 1000;
    }
    ok(!$connection->readable, '10,000 pipelined requests get 10,000 answers');
}

# A client that leaves before its body is complete pushed nothing; one that leaves before the answer
# pushed once, and its second try is a duplicate of that or stored.
{
    my $item = '{"items":[{"queue":"leave","payload":1,"transactionId":"x"}]}';
    my $complete = post('Content-Length: ' . length($item) . "\r\n", $item);
    for my $reset (0, 1)
    {
        my $connection = $web->connect;
        $connection->write(substr $complete, 0, -1);
        setsockopt $connection->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0) if $reset;
        $connection->close;
    }
    for (1 .. 20)
    {
        my $connection = $web->connect;
        $connection->write($complete);
        setsockopt $connection->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
        $connection->close;
    }
    $web->post('/api/v1/push', $item);
    is(count('leave'), 1, 'clients that left');
    wait_until(sub { open_files() <= $files }, 'their connections are closed');
    pass('leave no connection behind');
}

# Slow clients. The times are short, and nothing is concluded from how long something took.
{
    my $quick = $queen->start_frontend(args => [ qw(--header-timeout 500 --body-timeout 500 --idle-timeout 500 --max-body-bytes 1048576) ]);
    my $slowly = sub {
        my ($name, $bytes, $expected) = @_;
        my $connection = $quick->connect;
        $connection->write($bytes);
        # Bytes that trickle in win no time.
        while (!$connection->readable(0.05)) { $connection->write('1') or last }
        is(outcome($connection), $expected, $name);
        return;
    };
    $slowly->('a slow header block', "GET /status HTTP/1.1\r\nHost: ", '408, request took too long, closed');
    $slowly->('a slow request line', 'GET /', 'no answer, closed');
    $slowly->('a slow body', post("Content-Length: 1000\r\n", '{'), '408, request took too long, closed');
    $slowly->('a slow chunk', chunked("ff\r\n{"), '408, request took too long, closed');
    $slowly->('a slow chunk size', chunked('1'), '408, request took too long, closed');
    # The library cannot take in more of this one, and must not spin on what it has.
    my $ticks = sub { my @fields = split / /, slurp_file('/proc/' . $quick->pid . '/stat'); return $fields[13] + $fields[14] };
    my $before = $ticks->();
    $slowly->('a chunk extension without end', chunked('c;' . 'a' x 40000), '408, request took too long, closed');
    ok($ticks->() - $before < 10, 'which takes next to no processor time');

    my $connection = $quick->connect;
    $connection->write(chunked(''));
    my $chunk = sprintf "%x\r\n%s\r\n", 65536, 'x' x 65536;
    1 while $connection->write($chunk);
    is(eval { $connection->receive->{status} }, 413, 'a body without end is not read for ever');

    $connection = $quick->connect;
    $connection->send('GET', '/status');
    is($connection->receive->{status}, 200, 'a connection');
    is($connection->read_all, '', 'that stays silent is closed');
    is($quick->connect->read_all, '', 'one that never spoke, too');
    $connection = $quick->connect;
    $connection->write(get("Host: x\r\n", '/api/v1/pop/queue/pipe?consumerGroup=g&wait=true&timeout=1500'));
    is($connection->receive->{status}, 204, 'one with a parked poll is not');
}

# A client that does not read holds nobody up, and misses nothing when it does.
{
    my @payloads = map { '"' . $_ x 1_000_000 . '"' } 'a' .. 'h';
    $web->post('/api/v1/push', qq({"items":[{"queue":"slow","payload":$_}]})) for @payloads;
    my $connection = QueenTest::Connection->new($web->port, rcvbuf => 8192);
    $connection->write(get("Host: x\r\n", '/api/v1/pop/queue/slow'));
    wait_until(sub { $web->get('/metrics')->{json}{queen}{popMessages} >= 8 }, 'the answer is on its way');
    is($web->push({ queue => 'pipe', payload => 5 })->[0]{status}, 'queued', 'others are served');
    is(join(',', QueenTest::raw_payloads($connection->receive->{body})), join(',', @payloads), 'a slow reader gets it all');
}

# The limit on connections.
{
    my $narrow = $queen->start_frontend(args => [ '--max-connections', 5, '--threads', 1 ]);
    my @connections;
    my $answered = sub {
        my ($connection) = @_;
        return $connection->write(get("Host: x\r\n")) && $connection->readable(0.5) && eval { $connection->receive };
    };
    while (@connections < 50)
    {
        my $connection = $narrow->connect;
        last unless $answered->($connection);
        push @connections, $connection;
    }
    ok(@connections >= 4 && @connections <= 6, 'about five connections are served') or diag scalar @connections;
    is(scalar(grep { $answered->($_) } @connections), scalar @connections, 'and go on');
    $_->close for @connections;
    is(wait_until(sub { my $response = eval { $narrow->get('/status') }; $response && $response->{status} },
            'there is room again'), 200, 'when they are gone, others are served');
}

wait_until(sub { open_files() <= $files }, 'every connection is closed');
pass('no file stays open');
$queen->finish;
