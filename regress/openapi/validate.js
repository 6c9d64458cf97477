// usage: validate.js OPENAPI <EXCHANGES
//
// Compares requests and answers, a JSON array, with an OpenAPI file. Prints a JSON object:
// "operations" of the file, with their level; "errors", an array per exchange; "unseen", the
// answers that the file describes and no exchange had.
//
// An object of the file that lists its properties has no others: a member that nobody has
// described is an error.
'use strict';
const fs = require('fs');
const Ajv = require('ajv/dist/2020');
const formats = require('ajv-formats');
const YAML = require('yaml');

const api = YAML.parse(fs.readFileSync(process.argv[2], 'utf8'));
const exchanges = JSON.parse(fs.readFileSync(0, 'utf8'));

function close(node) {
  if (node === null || typeof node !== 'object') return;
  if (node.type === 'object' && node.properties && !('additionalProperties' in node)) node.additionalProperties = false;
  Object.values(node).forEach(close);
}

const ajv = new Ajv({ allErrors: true, strict: true, allowUnionTypes: true, strictRequired: false });
formats(ajv);
ajv.addVocabulary(['components']);
const open = structuredClone(api);
close(api.components.schemas);
ajv.addSchema({ $id: 'closed', components: { schemas: api.components.schemas } });
ajv.addSchema({ $id: 'open', components: { schemas: open.components.schemas } });

// The validator of a schema; answers are closed, requests may have members that are ignored.
const validators = new Map();
function validator(schema, root) {
  const key = root + JSON.stringify(schema);
  if (!validators.has(key)) {
    const text = JSON.stringify(schema).replace(/"#\/components/g, `"${root}#/components`);
    validators.set(key, ajv.compile(JSON.parse(text)));
  }
  return validators.get(key);
}

function resolve(node) {
  if (!node || !node.$ref) return node;
  return node.$ref.slice(2).split('/').reduce((at, name) => at[name], api);
}

const operations = [];
for (const [path, item] of Object.entries(api.paths)) {
  for (const [method, operation] of Object.entries(item)) {
    const [scheme] = operation.security;
    operations.push({
      method: method.toUpperCase(), path, operation, seen: new Set(),
      level: scheme ? scheme.bearer[0] : 'public',
      match: new RegExp('^' + path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]*') + '$')
    });
  }
}

// Plain segments before parameters, as the server has them.
operations.sort((a, b) => a.path.split('{').length - b.path.split('{').length);

function check_schema(schema, root, value, what, errors) {
  const validate = validator(schema, root);
  if (!validate(value)) errors.push(...validate.errors.map((e) => `${what}${e.instancePath} ${e.message} ${JSON.stringify(e.params)}`));
}

function check_answer(exchange, operation, errors) {
  const answer = resolve(operation.responses[exchange.status]);
  if (!answer) return errors.push(`status ${exchange.status} is not described`);
  const type = (exchange.type || '').split(';')[0];
  if (!answer.content) return exchange.text === '' || errors.push('a body is not described');
  if (!answer.content[type]) return errors.push(`content type "${type}" is not described`);
  const value = type === 'application/json' ? JSON.parse(exchange.text) : exchange.text;
  check_schema(answer.content[type].schema, 'closed', value, 'answer', errors);
}

function check_request(exchange, operation, errors) {
  const query = new URLSearchParams(exchange.path.split('?')[1] || '');
  const known = new Set((operation.parameters || []).map(resolve).filter((p) => p.in === 'query').map((p) => p.name));
  for (const name of query.keys()) if (!known.has(name)) errors.push(`argument ${name} is not described`);
  if ('request' in exchange) {
    if (!operation.requestBody) return errors.push('the body of the request is not described');
    check_schema(operation.requestBody.content['application/json'].schema, 'open', exchange.request, 'request', errors);
  }
}

const results = exchanges.map((exchange) => {
  const path = exchange.path.split('?')[0];
  const found = operations.find((o) => o.method === exchange.method && o.match.test(path));
  if (!found) return ['the route is not described'];
  found.seen.add(String(exchange.status));
  const errors = [];
  check_answer(exchange, found.operation, errors);
  if (exchange.status < 300) check_request(exchange, found.operation, errors);
  return errors;
});

console.log(JSON.stringify({
  operations: operations.map(({ method, path, level }) => ({ method, path, level })),
  errors: results,
  unseen: operations.flatMap((o) => Object.keys(o.operation.responses)
    .filter((status) => !o.seen.has(status)).map((status) => `${o.method} ${o.path} ${status}`))
}));
