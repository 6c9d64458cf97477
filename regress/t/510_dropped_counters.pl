# The counters of a dropped database make room for others, whether or not workers looked
# after it.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('dropped', conf => "queen.max_tracked_queues = 16\nqueen.databases = 'elsewhere'\n");
my $node = $queen->node;

sub fill
{
    my ($database) = @_;
    $node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0");
    $node->safe_psql($database, 'CREATE EXTENSION queen');
    return $node->safe_psql($database, <<'SQL');
DO $$
DECLARE
    tenant uuid := '00000000-0000-0000-0000-000000000001';
BEGIN
    FOR i IN 1 .. 100 LOOP
        PERFORM queen.log_provision(ARRAY[tenant], ARRAY['q' || i], '{p}');
        PERFORM queen.log_push(ARRAY[tenant], ARRAY['q' || i], '{p}', '{1}',
                               '{"\\x00000000000000000000000000000000"}', '{"\\x01"}', true);
    END LOOP;
END
$$;
SELECT count(queue_id) FROM queen.stat_queues();
SQL
}

my $tracked = fill('first');
ok($tracked >= 16, "as many as there is room for: $tracked");
is(fill('second'), 0, 'there is none for a second database');
$node->safe_psql('postgres', 'DROP DATABASE first');
is(fill('third'), $tracked, 'until the first is dropped');

$queen->finish;
