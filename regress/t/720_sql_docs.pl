# docs/sql.md: its examples work as printed, and its reference is what the database says itself.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('sqldocs');
my $page = slurp_file("$FindBin::Bin/../../docs/sql.md");
$queen->sql('CREATE ROLE shop LOGIN IN ROLE queen_app; GRANT CREATE ON SCHEMA public TO shop');

# Blocks run one after the other with the rights of an application; what a text block shows is the
# output of the one before it.
my @blocks = $page =~ /^```(sql|text)\n(.*?)^```$/gms;
while (my ($language, $text) = splice @blocks, 0, 2)
{
    next if $language eq 'text';
    my ($output, $errors);
    my $status = $queen->node->psql('postgres', $text, extra_params => [ '-U', 'shop' ], on_error_stop => 1, stdout => \$output, stderr => \$errors);
    my ($name) = $text =~ /^(.*)$/m;
    is($status, 0, $name) or diag $errors;
    is("$output\n", $blocks[1], "$name, its answer") if ($blocks[0] // '') eq 'text';
}

# Functions and types, with the comments that the database has on them.
my $reference = $queen->sql(<<'SQL');
SELECT string_agg(s.section, E'\n' ORDER BY s.kind, s.name COLLATE "C")
  FROM (SELECT 1 AS kind, p.proname AS name,
               format(E'### queen.%s\n\n`(%s) → %s`\n\n%s.\n', p.proname, pg_get_function_arguments(p.oid),
                      pg_get_function_result(p.oid), obj_description(p.oid, 'pg_proc')) AS section
          FROM pg_proc AS p
         WHERE p.pronamespace = 'queen'::regnamespace AND has_function_privilege('queen_app', p.oid, 'EXECUTE')
        UNION ALL
        SELECT 2, c.relname,
               format(E'### Type queen.%s\n\n%s.\n\n| column | type | |\n| --- | --- | --- |\n%s\n', c.relname,
                      obj_description(c.reltype, 'pg_type'),
                      (SELECT string_agg(format('| `%s` | `%s` | %s |', a.attname, format_type(a.atttypid, a.atttypmod),
                                                col_description(c.oid, a.attnum)), E'\n' ORDER BY a.attnum)
                         FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0))
          FROM pg_class AS c
         WHERE c.relkind = 'c'
           AND c.reltype IN (SELECT p.prorettype FROM pg_proc AS p
                              WHERE p.pronamespace = 'queen'::regnamespace AND has_function_privilege('queen_app', p.oid, 'EXECUTE'))) AS s
SQL
my ($printed) = $page =~ /^## Reference\n\n(.*)/ms;
is($printed, "$reference\n", 'the reference') or note $reference;
$queen->finish;
