/*
 * tables.c
 *		The extension's tables for code that works on them without SQL.
 *
 * Relations and columns are found by name, and their numbers kept until the
 * relation changes or goes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "tables.h"

typedef struct TableNames
{
	const char *name;
	const char *columns[LOG_COLUMNS + 1];
} TableNames;

static const TableNames table_names[LOG_TABLES] = {
	[QUEUES] = {"queues",
				{"id", "tenant_id", "name", "lease_time", "retry_limit", "dead_letter_queue",
				 "dlq_after_max_retries", "delayed_processing", "window_buffer",
				 "min_pop_wait_time", "encryption_enabled", "dedup_window_seconds", "deleted_at"}},
	[PARTITIONS] = {"log_partitions",
					{"id", "queue_id", "name", "last_offset", "log_start", "txns_start",
					 "last_write_at", "created_at", "last_created_at", "segments", "bytes"}},
	[DUE] = {"log_due", {"partition_id", "retention_at", "purge_at", "idle_since"}},
	[SEGMENTS] = {"log_segments",
				  {"partition_id", "base_offset", "end_offset", "created_at", "blob"}},
	[TXNS] = {"log_txns", {"partition_id", "base_offset", "end_offset", "created_at", "hashes"}},
	[CONSUMERS] = {"log_consumers",
				   {"partition_id", "consumer_group", "committed", "batch_end", "worker_id",
					"lease_expires_at", "lease_acquired_at", "batch_retry_count", "attempt_offset",
					"attempt_count", "total_consumed", "created_at"}},
	[SUBSCRIPTIONS] = {"consumer_groups_metadata", {NULL}},
};

static const char *const index_names[LOG_INDEXES] = {
	[QUEUES_BY_ID] = "queues_pkey",
	[QUEUES_BY_NAME] = "queues_tenant_name_uk",
	[PARTITIONS_BY_ID] = "log_partitions_pkey",
	[PARTITIONS_BY_NAME] = "log_partitions_queue_id_name_key",
	[PARTITIONS_BY_WRITE] = "idx_log_partitions_queue_write",
	[DUE_BY_PARTITION] = "log_due_pkey",
	[SEGMENTS_BY_OFFSET] = "log_segments_pkey",
	[TXNS_BY_OFFSET] = "log_txns_pkey",
	[CONSUMERS_BY_GROUP] = "log_consumers_pkey",
	[SUBSCRIPTIONS_BY_QUEUE] = "consumer_groups_metadata_queue_idx",
};

/* What this session has looked up; InvalidOid: nothing. */
typedef struct KnownTable
{
	Oid relid;
	AttrNumber attnos[LOG_COLUMNS];
} KnownTable;

static KnownTable known_tables[LOG_TABLES];
static Oid known_indexes[LOG_INDEXES];

/* The callback of relation cache invalidation: "relid" changed, InvalidOid stands for any. */
static void
forget(Datum arg, Oid relid)
{
	for (int i = 0; i < LOG_TABLES; i++)
		if (!OidIsValid(relid) || known_tables[i].relid == relid)
			known_tables[i].relid = InvalidOid;
	for (int i = 0; i < LOG_INDEXES; i++)
		if (!OidIsValid(relid) || known_indexes[i] == relid)
			known_indexes[i] = InvalidOid;
}

static Oid
find_relation(const char *name)
{
	Oid relid = get_relname_relid(name, get_namespace_oid("queen", false));

	if (!OidIsValid(relid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation \"queen.%s\" does not exist", name)));
	return relid;
}

static AttrNumber
find_column(Oid relid, const TableNames *names, int column)
{
	AttrNumber attno = get_attnum(relid, names->columns[column]);

	if (attno == InvalidAttrNumber)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of relation \"queen.%s\" does not exist",
							   names->columns[column], names->name)));
	return attno;
}

/* The number is noted first: a change that is heard of while the columns are looked up clears it.
 */
static Oid
find_table(LogTableId id)
{
	const TableNames *names = &table_names[id];
	Oid relid = find_relation(names->name);

	known_tables[id].relid = relid;
	for (int i = 0; i < LOG_COLUMNS && names->columns[i] != NULL; i++)
		known_tables[id].attnos[i] = find_column(relid, names, i);
	return relid;
}

/* What is known may be out of date until the lock is ours; to wait for it is to hear of it. */
static Relation
open_table(LogTableId id, LOCKMODE lock)
{
	KnownTable *known = &known_tables[id];

	for (;;)
	{
		Oid relid = OidIsValid(known->relid) ? known->relid : find_table(id);
		Relation rel = try_table_open(relid, lock);

		if (rel != NULL && known->relid == relid)
			return rel;
		if (rel != NULL)
			table_close(rel, lock);
		known->relid = InvalidOid;
	}
}

/* Rows are written without firing triggers; foreign keys are kept by who writes (rows.h). */
static void
refuse_triggers(Relation rel)
{
	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		if (!trigger->tgisinternal && trigger->tgenabled != TRIGGER_DISABLED &&
			(TRIGGER_FOR_INSERT(trigger->tgtype) || TRIGGER_FOR_UPDATE(trigger->tgtype)))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("trigger \"%s\" on table \"%s\" is not supported",
								   trigger->tgname, RelationGetRelationName(rel)),
							errhint("Drop or disable the trigger.")));
	}
}

static void
open_for_writing(LogTable *table)
{
	refuse_triggers(table->rel);
	CheckCmdReplicaIdentity(table->rel, CMD_UPDATE);
	table->estate = CreateExecutorState();
	table->target = makeNode(ResultRelInfo);
	InitResultRelInfo(table->target, table->rel, 0, NULL, 0);
	ExecOpenIndices(table->target, false);
	table->draft = table_slot_create(table->rel, NULL);
}

LogTable *
log_table_open(LogTableId id, LOCKMODE lock)
{
	static bool registered = false;
	LogTable *table = palloc0(sizeof(LogTable));

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget, (Datum) 0);
		registered = true;
	}
	if (lock >= RowShareLock)
		PreventCommandIfReadOnly("queue functions");
	table->id = id;
	table->rel = open_table(id, lock);
	table->attnos = known_tables[id].attnos;
	if (lock >= RowExclusiveLock)
		open_for_writing(table);
	return table;
}

void
log_table_close(LogTable *table)
{
	if (table->estate != NULL)
	{
		ExecDropSingleTupleTableSlot(table->draft);
		ExecCloseIndices(table->target);
		FreeExecutorState(table->estate);
	}
	for (int i = 0; i < LOG_INDEXES; i++)
		if (table->indexes[i] != NULL)
			index_close(table->indexes[i], NoLock);
	table_close(table->rel, NoLock);
	pfree(table);
}

Relation
log_table_index(LogTable *table, LogIndexId id)
{
	if (table->indexes[id] == NULL)
	{
		if (!OidIsValid(known_indexes[id]))
			known_indexes[id] = find_relation(index_names[id]);
		table->indexes[id] = index_open(known_indexes[id], AccessShareLock);
	}
	return table->indexes[id];
}
