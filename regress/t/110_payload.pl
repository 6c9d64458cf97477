# Payloads are bytes: what a producer sends is what a consumer gets, and what is no JSON is
# refused. Uses the public JSON parsing suite and sample payloads when they are there
# (QUEEN_TEST_DATA, else shared/data beside the checkout).
use strict;
use warnings;
use File::Basename 'basename';
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error raw_payloads);
use Test::More;

my $data = $ENV{QUEEN_TEST_DATA} || '../shared/data';
my $queen = QueenTest->new('payload', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;

# The payload stands between two members, so that nothing in it can pass for the end of the item.
sub push_raw
{
    my ($queue, @payloads) = @_;
    my $items = join ',', map { qq({"partition":"p","payload":$_,"queue":"$queue"}) } @payloads;
    return $web->post('/api/v1/push', qq({"items":[$items]}));
}

sub pop_raw
{
    my ($queue) = @_;
    return raw_payloads($web->get("/api/v1/pop/queue/$queue?batch=10000&autoAck=true")->{body});
}

sub refused
{
    my ($payload, $name) = @_;
    my $response = push_raw('refused', $payload);
    is($response->{status}, 400, "refused: $name");
    like($response->{json}{error}, qr/^bad body: .* at byte \d+$/, 'with what is wrong and where');
    return;
}

sub comes_back
{
    my ($name, @payloads) = @_;
    is(push_raw('kept', @payloads)->{status}, 201, "taken: $name");
    is_deeply([ pop_raw('kept') ], \@payloads, "byte for byte: $name");
    return;
}

comes_back('number spellings', qw(0 -0 0.0 -0.0 1.10 1e5 1E+5 1e-05 1e999 -1E400 123456789012345678901234567890
      9007199254740993 9223372036854775808 18446744073709551617 0.1000000000000000055),
    '1e' . '9' x 1000, '9' x 5000);
comes_back('key order and equal keys', '{"b":1,"a":2,"b":3}', '{"a":1,"a":2}', '{"\u0061":1,"a":2}', '{"":1,"":2}');
comes_back('escapes', '"\u0041\/\u00e9\n\b"', '"\ud83d\udc07"', '"\u0000"', '"A/\\\\"', "\"\xc3\xa9\xf0\x9f\x90\x87\"",
    "\"\x7f\"", '{"\u0000":"\u001f"}');
comes_back('white space inside', "[ 1 ,\t2\r\n]", "{ \"a\" : [ ] }");
comes_back('the words of the answer', '{"data":1,"messages":[{"data":2}]}', '"],\"data\":3"', '"}"');
is(push_raw('kept', " \t\r\n {\"a\" : 1} \r\n ")->{status}, 201, 'white space around a payload');
is_deeply([ pop_raw('kept') ], ['{"a" : 1}'], 'is no part of it');
is($web->post('/api/v1/push', qq(\r\n\t {"items" : [ {"queue" : "kept" , "payload" : 1 } ] } \n))->{status},
    201, 'white space around the body');
is_deeply([ pop_raw('kept') ], ['1'], 'does not matter');

# Nesting.
comes_back('512 levels', '[' x 512 . ']' x 512, '{"a":' x 511 . '[]' . '}' x 511);
refused('[' x 513 . ']' x 513, '513 levels of arrays');
refused('{"a":' x 513 . '1' . '}' x 513, '513 levels of objects');
sub ignored { my ($levels) = @_; return '"hint":' . '[' x $levels . ']' x $levels; }
is($web->post('/api/v1/push', '{' . ignored(63) . ',"items":[]}')->{status}, 201, 'an ignored member may nest 63 deep');
is($web->post('/api/v1/push', '{' . ignored(64) . ',"items":[]}')->{status}, 400, 'not 64');
is($web->post('/api/v1/push', '{"items":[{"queue":"nest","payload":1,' . ignored(61) . '}]}')->{status}, 201,
    'one of an item 61');
is($web->post('/api/v1/push', '{"items":[{"queue":"nest","payload":1,' . ignored(62) . '}]}')->{status}, 400, 'not 62');

# Much of one thing.
refused('[' x 1_000_000, 'a million brackets');
refused('{"a":' x 200_000, 'objects without end');
comes_back('a long string of escapes', '"' . '\u0041' x 60_000 . '"');
comes_back('a long key', '{"' . 'k' x 1_000_000 . '":1}');
comes_back('many elements', '[' . join(',', (0) x 200_000) . ']');
is($web->post('/api/v1/push', '{"items":[' . join(',', ('{}') x 100_000) . ']}')->{status}, 400, 'many empty items');

# What is not JSON.
refused($_->[0], $_->[1])
  for (
    [ '01', 'a leading zero' ], [ '+1', 'a plus sign' ], [ '.5', 'no digit before the point' ],
    [ '1.', 'no digit after it' ], [ '0x10', 'hexadecimal' ], [ 'NaN', 'not a number' ],
    [ 'Infinity', 'infinity' ], [ 'nul', 'half a word' ], [ 'True', 'a word in capitals' ],
    [ "'a'", 'single quotes' ], [ '[1,]', 'a trailing comma' ], [ '{"a":1,}', 'a trailing comma in an object' ],
    [ '{a:1}', 'a bare key' ], [ '{"a" 1}', 'no colon' ], [ '[1 2]', 'no comma' ], [ '/* */1', 'a comment' ],
    [ "\"\t\"", 'a raw control character' ], [ "\"\0\"", 'a raw NUL' ], [ '"\x41"', 'an escape that is none' ],
    [ '"\u12g4"', 'a bad \u escape' ], [ '"\ud800"', 'a lone surrogate' ], [ '"\udc00\ud800"', 'surrogates the wrong way' ],
    [ '{"\ud800":1}', 'a lone surrogate in a key' ], [ "\"\xff\"", 'a byte that is not UTF-8' ],
    [ "\"\xc0\x80\"", 'an overlong form' ], [ "\"\xed\xa0\x80\"", 'an encoded surrogate' ],
    [ "\"\xf4\x90\x80\x80\"", 'a code point too large' ], [ "\xef\xbb\xbf1", 'a byte order mark' ],
    [ "\x0c1", 'a form feed' ], [ "\xc2\xa01", 'a no-break space' ]);

# The parsing suite.
SKIP:
{
    my @files = sort glob "$data/json-parsing/test_parsing/*.json";
    skip "no JSON parsing suite in $data", 1 unless @files;
    my %verdicts = slurp_file('docs/json.md') =~ /^\| `(i_\w[^`]*)` \| (accepted|refused) /gm;
    for my $file (@files)
    {
        my $name = basename($file, '.json');
        my $text = slurp_file($file);
        my $accepted = $name =~ /^y_/ || ($name =~ /^i_/ && ($verdicts{$name} // 'not in docs/json.md') eq 'accepted');
        my $response = push_raw('suite', $text);
        is($response->{status}, $accepted ? 201 : 400, $name);
        is_deeply([ pop_raw('suite') ], [ $text =~ s/\A[ \t\r\n]+|[ \t\r\n]+\z//gr ], "$name comes back") if $accepted;
        isnt($web->post('/api/v1/push', $text)->{status}, 201, "$name as a body");
    }
    is(join(' ', sort keys %verdicts), join(' ', map { basename($_, '.json') } grep { m{/i_} } @files),
        'docs/json.md decides every open case');
}

# Real payloads, in order.
SKIP:
{
    my @files = sort glob "$data/payloads/*.ndjson";
    skip "no sample payloads in $data", 1 unless @files;
    for my $file (@files)
    {
        my $name = basename($file, '.ndjson');
        my @lines = split /\n/, slurp_file($file);
        my @left = @lines;
        while (my @batch = splice @left, 0, 100)
        {
            push_raw($name, @batch)->{status} == 201 or die 'a payload was refused';
        }
        my @popped = pop_raw($name);
        is(@popped, @lines, "$name: every payload comes back");
        is_deeply([ grep { $popped[$_] ne $lines[$_] } 0 .. $#lines ], [], "$name: byte for byte and in order");
    }
}

is($queen->sql(q{SELECT count(*) FROM queen.queues WHERE name = 'refused'}), 0, 'nothing of what was refused is stored');
$queen->finish;
