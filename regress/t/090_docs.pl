# The commands of the quick start, of README and of the HTTP reference work as printed. Where a
# json block follows a command, the answer is that, ids apart. Blocks without a language are not
# run. The reference has an example of every route, and the table of routes a test.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

my $json = JSON::PP->new->canonical->pretty;
my $root = "$FindBin::Bin/../..";
my $queen = QueenTest->new('docs');
my $web = $queen->start_frontend(env => { FILE_BUFFER_DIR => PostgreSQL::Test::Utils::tempdir });
$ENV{QUEEN_URL} = $web->url;

sub normal
{
    my ($text) = @_;
    $text =~ s/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/ID/g;
    return $json->encode(decode_json($text));
}

# Runs one block in the page's directory. Functions live on from block to block; a request
# that is refused ends the block with an error.
sub run_block
{
    my ($directory, $text) = @_;
    open my $file, '>', "$directory/block" or die $!;
    print $file <<"SCRIPT";
set -eo pipefail
cd $directory
touch functions
. ./functions
curl() { echo "\$*" | tr '\\n' ' ' >>requests; echo >>requests; command curl -f "\$@"; }
$text
declare -f >functions
SCRIPT
    close $file;
    my $output = `bash $directory/block 2>&1`;
    return ($?, $output);
}

sub check_page
{
    my ($page) = @_;
    my $directory = PostgreSQL::Test::Utils::tempdir;
    $web->request('DELETE', "/api/v1/resources/queues/$_->{name}") for @{ $web->get('/api/v1/resources/queues')->{json}{queues} };
    my @blocks = slurp_file("$root/$page") =~ /^```(sh|json)\n(.*?)^```$/gms;
    while (my ($language, $text) = splice @blocks, 0, 2)
    {
        next if $language eq 'json';
        my $name = "$page: " . (split /\n/, $text)[0];
        my ($status, $output) = run_block($directory, $text);
        is($status, 0, $name) or diag $output;
        is(normal($output), normal($blocks[1]), "$name, its answer") if ($blocks[0] // '') eq 'json';
    }
    return slurp_file("$directory/requests");
}

check_page('docs/quickstart.md');
check_page('README.md');

# The HTTP reference: an example of every route.
{
    my @requests = map { [ /-X (\w+)/ ? "$1" : / -d / ? 'POST' : 'GET', m{http://[^/]+([^\s?]*)} ] } split /\n/, check_page('docs/http.md');
    my (@missing, @table);
    for my $route (QueenTest::routes())
    {
        my ($method, $path, $level) = @$route;
        my $pattern = join '[^/]+', map { quotemeta } split /:\w+/, $path, -1;
        push @missing, "$method $path" unless grep { $_->[0] eq $method && $_->[1] =~ /^$pattern$/ } @requests;
        push @table, "$method $path | " . lc($level) =~ s/_/-/r;
    }
    is(join("\n", @missing), '', 'every route has an example');

    # The table of routes and their tests.
    my @rows = slurp_file("$root/docs/compatibility.md") =~ /^\| `([A-Z]+ \/\S*)` \| (\S+) \| `(\S+)` \|$/gm;
    my (@documented, @without);
    while (my ($route, $level, $test) = splice @rows, 0, 3)
    {
        push @documented, "$route | $level";
        my ($word) = $route =~ m{.*/([^:/]+)};
        push @without, "$route $test" unless -f "$root/regress/t/$test" && slurp_file("$root/regress/t/$test") =~ /\b\Q$word\E\b/;
    }
    is(join("\n", sort @documented), join("\n", sort @table), 'the table of routes');
    is(join("\n", @without), '', 'their tests speak of them');
}

# Every setting is in its table: the front end's with variable and default, the extension's
# with default and context.
my $page = slurp_file("$root/docs/configuration.md") =~ s/`//gr;
my $help = `$ENV{QUEEN_FRONTEND} --help`;
my @flags;
push @flags, "$1 | $2 | $3" while $help =~ /^  --(\S+)\s+\S.*\n\s+\((.*); default (.*)\)$/gm;
cmp_ok(scalar @flags, '>', 10, 'the help lists settings');
is(join("\n", $page =~ /^\| --([a-z]\S* \| .*? \| .*?) \|/gm), join("\n", @flags), 'the settings of the front end');
is(join("\n", $page =~ /^\| (queen\.\S+ \| .*? \| .*?) \|/gm), $queen->sql(<<'SQL'), 'the settings of the extension');
SELECT concat_ws(' | ', name, current_setting(name),
                 CASE context WHEN 'postmaster' THEN 'restart' WHEN 'sighup' THEN 'reload'
                              WHEN 'user' THEN 'session' ELSE context END)
  FROM pg_settings
 WHERE name LIKE 'queen.%'
 ORDER BY name
SQL
$queen->finish;
