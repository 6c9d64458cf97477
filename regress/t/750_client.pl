# A client of the JavaScript kind: the HTTP client of Node.js, and the habits of the libraries.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use IPC::Run ();
use JSON::PP ();
use QueenTest;
use Test::More;

my $queen = QueenTest->new('client', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend(env => { DEFAULT_SUBSCRIPTION_MODE => 'all' }, args => [qw(--threads 2)]);
my ($output, $error) = ('', '');
IPC::Run::run([ 'node', "$FindBin::Bin/../client/client.js", $web->url ], '>', \$output, '2>', \$error);
is($?, 0, 'the client runs') or diag $error;
my $results = JSON::PP->new->utf8->decode($output || '[]');
cmp_ok(scalar @$results, '>', 0, 'and has done something');
is($_->{error}, undef, $_->{name}) for @$results;
$queen->finish;
