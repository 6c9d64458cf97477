/*
 * streams.c
 *		POST /streams/v1/queries and /streams/v1/state/get
 */
#include "streams.h"

#include "body.h"
#include "db.h"
#include "names.h"
#include "worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS_MAX 100000

void
stream_fail(Request *req, int status, const char *error)
{
	Buf body = {0};

	buf_append_str(&body, "{\"success\":false,\"error\":");
	json_write_string(&body, error, strlen(error));
	buf_append_char(&body, '}');
	http_reply(req, status, &body);
}

static void
refuse_body(Request *req, const Body *body)
{
	char text[160];
	int status = body_fault(body, text, sizeof(text));

	stream_fail(req, status, text);
}

static void
fail_call(Request *req, const DbError *error)
{
	int status = db_error_status(error);

	stream_fail(req, status == 404 ? 400 : status, error->message);
}

/* --- queries ---------------------------------------------------------------- */

typedef struct StreamQuery
{
	Span name, source, sink, hash;
	bool reset;
	Buf strings;
} StreamQuery;

enum
{
	QUERY_ID,
	QUERY_FRESH,
	QUERY_RESET
};

static void
query_done(Request *req, bool delivered)
{
	StreamQuery *query = req->ctx;

	(void) delivered;
	buf_free(&query->strings);
	free(query);
}

static void
on_query(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	const StreamQuery *query = req->ctx;
	char id[UUID_TEXT_LEN];
	Buf body = {0};
	Uuid uuid;

	if (error)
		fail_call(req, error);
	else if (PQntuples(res) == 0)
		stream_fail(req, 409,
					"config_hash mismatch: the query is known with another configuration; "
					"\"reset\": true replaces it and wipes its state");
	else
	{
		pgcol_uuid(res, 0, QUERY_ID, &uuid);
		uuid_format(&uuid, id);
		buf_printf(&body, "{\"success\":true,\"query_id\":\"%.*s\",\"name\":", UUID_TEXT_LEN, id);
		json_write_string(&body, query->name.ptr, query->name.len);
		buf_append_str(&body, ",\"config_hash\":");
		json_write_string(&body, query->hash.ptr, query->hash.len);
		buf_printf(&body, ",\"fresh\":%s,\"reset\":%s}",
				   pgcol_bool(res, 0, QUERY_FRESH) ? "true" : "false",
				   pgcol_bool(res, 0, QUERY_RESET) ? "true" : "false");
		http_reply(req, 200, &body);
	}
	PQclear(res);
}

static bool
query_member(Body *body, StreamQuery *query, const JsonValue *key)
{
	JsonValue ignored;

	if (json_string_equals(key, "name"))
		return body_text(body, "name", true, &query->name);
	if (json_string_equals(key, "source_queue"))
		return body_text(body, "source_queue", true, &query->source);
	if (json_string_equals(key, "sink_queue"))
		return body_text(body, "sink_queue", true, &query->sink);
	if (json_string_equals(key, "config_hash"))
		return body_text(body, "config_hash", true, &query->hash);
	if (json_string_equals(key, "reset"))
		return body_bool(body, "reset", &query->reset);
	return json_value(&body->reader, &ignored);
}

static bool
parse_query(Body *body, StreamQuery *query)
{
	JsonValue key;
	const char *why;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!query_member(body, query, &key))
			return false;
	if (!json_end(&body->reader))
		return false;
	why = query->name.ptr ? name_check(query->name) : "is required";
	if (why)
		return body_fail(body, "name", why);
	why = query->source.ptr ? queue_name_check(query->source) : "is required";
	if (why)
		return body_fail(body, "source_queue", why);
	why = query->hash.ptr ? name_check(query->hash) : "is required";
	if (why)
		return body_fail(body, "config_hash", why);
	if (query->sink.ptr && (why = queue_name_check(query->sink)) != NULL)
		return body_fail(body, "sink_queue", why);
	return true;
}

void
stream_query_handler(Request *req)
{
	StreamQuery *query = calloc(1, sizeof(*query));
	DbCall *call;
	Body body;

	req->ctx = query;
	req->on_done = query_done;
	if (!body_begin(&body, req, &query->strings) || !parse_query(&body, query))
	{
		refuse_body(req, &body);
		return;
	}
	call = db_call_new(CALL_STREAM_QUERY, on_query, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, query->name);
	db_call_text(call, 2, query->source);
	db_call_text(call, 3, query->sink);
	db_call_text(call, 4, query->hash);
	db_call_bool(call, 5, query->reset);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

/* --- state ------------------------------------------------------------------ */

typedef struct StateQuestion
{
	Span query, partition, prefix;
	JsonValue ripe;
	PgArray keys;
} StateQuestion;

enum
{
	STATE_KEY,
	STATE_VALUE,
	STATE_UPDATED_AT
};

static void
on_state(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};

	if (error)
	{
		fail_call(req, error);
		return;
	}
	buf_append_str(&body, "{\"success\":true,\"rows\":[");
	for (int row = 0; row < PQntuples(res); row++)
	{
		Span key = pgcol_span(res, row, STATE_KEY);
		Span value = pgcol_span(res, row, STATE_VALUE);

		buf_append_str(&body, row ? ",{\"key\":" : "{\"key\":");
		json_write_string(&body, key.ptr, key.len);
		buf_append_str(&body, ",\"value\":");
		buf_append(&body, value.ptr, value.len);
		buf_append_str(&body, ",\"updated_at\":\"");
		pgtime_format(&body, pgcol_int64(res, row, STATE_UPDATED_AT), 3);
		buf_append_str(&body, "\"}");
	}
	buf_append_str(&body, "]}");
	PQclear(res);
	http_reply(req, 200, &body);
}

static bool
has_nul(Span text)
{
	return text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL;
}

static bool
parse_keys(Body *body, StateQuestion *question)
{
	if (!json_enter_array(&body->reader))
		return false;
	body->list = "keys";
	for (body->index = 0; json_next_element(&body->reader); body->index++)
	{
		Span key = {NULL, 0};

		if (!body_text(body, "key", false, &key))
			return false;
		if (has_nul(key))
			return body_fail(body, "key", "holds the character U+0000");
		if (body->index == KEYS_MAX)
			return body_too_many(body, "keys", KEYS_MAX);
		pgarray_add_span(&question->keys, key);
	}
	body->list = NULL;
	return body->reader.error == NULL;
}

static bool
question_member(Body *body, StateQuestion *question, const JsonValue *key)
{
	JsonValue ignored;

	if (json_string_equals(key, "query_id"))
		return body_text(body, "query_id", true, &question->query);
	if (json_string_equals(key, "partition_id"))
		return body_text(body, "partition_id", true, &question->partition);
	if (json_string_equals(key, "key_prefix"))
		return body_text(body, "key_prefix", true, &question->prefix);
	if (json_string_equals(key, "keys"))
		return parse_keys(body, question);
	if (json_string_equals(key, "ripe_at_or_before"))
		return json_value(&body->reader, &question->ripe);
	return json_value(&body->reader, &ignored);
}

static bool
parse_question(Body *body, StateQuestion *question, Uuid *query, Uuid *partition)
{
	JsonValue key;
	double ripe;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!question_member(body, question, &key))
			return false;
	if (!json_end(&body->reader))
		return false;
	if (!uuid_parse(question->query.ptr, question->query.len, query))
		return body_fail(body, "query_id", "is required and must be a UUID");
	if (!uuid_parse(question->partition.ptr, question->partition.len, partition))
		return body_fail(body, "partition_id", "is required and must be a UUID");
	if (has_nul(question->prefix))
		return body_fail(body, "key_prefix", "holds the character U+0000");
	if (question->ripe.type == JSON_NULL)
		return true;
	ripe = question->ripe.type == JSON_NUMBER ? strtod(question->ripe.text.ptr, NULL) : NAN;
	return isfinite(ripe) || body_fail(body, "ripe_at_or_before", "must be a number");
}

void
stream_state_handler(Request *req)
{
	StateQuestion question = {.ripe = {.type = JSON_NULL}};
	Buf strings = {0};
	Uuid query, partition;
	DbCall *call;
	Body body;

	pgarray_begin(&question.keys, OID_TEXT);
	if (!body_begin(&body, req, &strings) || !parse_question(&body, &question, &query, &partition))
	{
		refuse_body(req, &body);
		buf_free(&question.keys.buf);
		buf_free(&strings);
		return;
	}
	pgarray_end(&question.keys);
	call = db_call_new(CALL_STREAM_STATE, on_state, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &query);
	db_call_uuid(call, 2, &partition);
	call->params[3] = question.keys;
	db_call_text(call, 4, question.prefix);
	db_call_text(call, 5, question.ripe.type == JSON_NUMBER ? question.ripe.text : (Span){NULL, 0});
	buf_free(&strings);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
