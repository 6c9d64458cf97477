/*
 * configure.c
 *		POST /api/v1/configure
 *
 * The body goes to the database as it is, with the options gathered in one
 * object; what they may hold is decided there.
 */
#include "admin.h"

#include "db.h"
#include "names.h"
#include "worker.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static bool
is_envelope_key(const char *key)
{
	static const char *const keys[] = {"queue", "namespace", "task", "mode", "options"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* A string member; absent and null are ptr NULL.  False when it is anything else. */
static bool
text_member(const json_t *body, const char *name, Span *out)
{
	const json_t *value = json_object_get(body, name);

	*out = (Span){NULL, 0};
	if (value == NULL || json_is_null(value))
		return true;
	if (!json_is_string(value))
		return false;
	*out = (Span){json_string_value(value), json_string_length(value)};
	return true;
}

/* Options at the top level of the body count too; those in "options" win. */
static json_t *
collect_options(json_t *body)
{
	json_t *options = json_object();
	json_t *value;
	const char *key;

	json_object_foreach(body, key, value)
	{
		if (!is_envelope_key(key))
			json_object_set(options, key, value);
	}
	json_object_update(options, json_object_get(body, "options"));
	return options;
}

static void
submit_configure(Request *req, json_t *body, Span queue, Span namespace, Span task, Span mode)
{
	json_t *options = collect_options(body);
	char *text;
	DbCall *call;

	if (req->worker->crypt == NULL && json_is_true(json_object_get(options, "encryptionEnabled")))
	{
		http_reply_error_with(req, 400, "this server has no encryption key", "invalid",
							  "encryptionEnabled");
		json_decref(options);
		return;
	}
	text = json_dumps(options, JSON_COMPACT);
	call = db_call_new(CALL_CONFIGURE, admin_on_json, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, queue);
	db_call_text(call, 2, namespace);
	db_call_text(call, 3, task);
	db_call_text(call, 4, span_of(text));
	db_call_text(call, 5, mode.ptr ? mode : SPAN_LITERAL("merge"));
	free(text);
	json_decref(options);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

static const char *
check_configure(const json_t *body, Span *queue, Span *namespace, Span *task, Span *mode)
{
	static _Thread_local char error[128];
	const json_t *options = json_object_get(body, "options");
	const char *why;

	if (!json_is_object(body))
		return "bad body: an object was expected";
	if (!text_member(body, "queue", queue) || queue->ptr == NULL)
		return "queue is required";
	if (!text_member(body, "namespace", namespace))
		return "namespace must be a string or null";
	if (!text_member(body, "task", task))
		return "task must be a string or null";
	if (!text_member(body, "mode", mode))
		return "mode must be merge or replace";
	if (options && !json_is_object(options) && !json_is_null(options))
		return "options must be an object";
	if ((why = queue_name_check(*queue)) != NULL)
		snprintf(error, sizeof(error), "queue %s", why);
	else if (namespace->ptr && (why = queue_name_check(*namespace)) != NULL)
		snprintf(error, sizeof(error), "namespace %s", why);
	else if (task->ptr && (why = queue_name_check(*task)) != NULL)
		snprintf(error, sizeof(error), "task %s", why);
	return why ? error : NULL;
}

void
configure_handler(Request *req)
{
	Span queue = {0}, namespace = {0}, task = {0}, mode = {0};
	json_error_t json_error;
	json_t *body;
	const char *error;

	body = json_loadb(req->body.data ? req->body.data : "", req->body.len,
					  JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &json_error);
	if (body == NULL)
	{
		char text[sizeof(json_error.text) + 16];

		snprintf(text, sizeof(text), "bad body: %s", json_error.text);
		http_reply_error(req, 400, text);
		return;
	}
	error = check_configure(body, &queue, &namespace, &task, &mode);
	if (error)
		http_reply_error(req, 400, error);
	else
		submit_configure(req, body, queue, namespace, task, mode);
	json_decref(body);
}
