package web

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"tranche/web/api"
)

// apiDescribe gives the OpenAPI 3.1 document of the public interface, made from
// the very table that is served and the wire structs it names.
func (s *server) apiDescribe(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, s.describe())
}

func (s *server) describe() map[string]any {
	schemas := schemas{}
	paths := map[string]map[string]any{}
	problem := map[string]any{
		"description": "A refusal: what is wrong, in which field, and what to do.",
		"content":     map[string]any{"application/problem+json": map[string]any{"schema": schemas.of(reflect.TypeFor[api.Problem]())}},
	}
	for _, o := range s.operations() {
		call := map[string]any{"operationId": o.id, "summary": o.summary, "responses": map[string]any{
			successOf(o): map[string]any{"description": o.summary, "content": jsonContent(schemas.of(reflect.TypeOf(o.out)))},
			"default":    problem,
		}}
		if params := parametersOf(o); len(params) > 0 {
			call["parameters"] = params
		}
		if o.in != nil {
			call["requestBody"] = map[string]any{"required": true, "content": jsonContent(schemas.of(reflect.TypeOf(o.in)))}
		}
		if o.scope == open {
			call["security"] = []any{}
		}
		if paths[o.path] == nil {
			paths[o.path] = map[string]any{}
		}
		paths[o.path][strings.ToLower(o.method)] = call
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "Tranche", "version": "1",
			"description": "Times are RFC 3339 in UTC. Durations are whole milliseconds. Amounts are ledger units: 3,600,000 per GPU-hour. Every command carries a key made by its sender, in the body or as Idempotency-Key: the same key with the same content gives the first result.",
		},
		"servers":  []any{map[string]any{"url": s.cfg.PublicURL}},
		"security": []any{map[string]any{"token": []any{}}},
		"paths":    paths,
		"components": map[string]any{
			"schemas":         schemas,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer", "description": "An API token of a person, for one project or program."}},
		},
	}
}

func successOf(o operation) string {
	if _, submits := o.in.(api.Submit); submits {
		return "201"
	}
	return "200"
}

func jsonContent(schema map[string]any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

// parametersOf lists the fields of an operation's address.
func parametersOf(o operation) []any {
	var out []any
	if strings.Contains(o.path, "{id}") {
		out = append(out, map[string]any{
			"name": "id", "in": "path", "required": true, "description": "number",
			"schema": map[string]any{"type": "integer", "format": "int64"},
		})
	}
	if strings.Contains(o.path, "{node}") {
		out = append(out, map[string]any{
			"name": "node", "in": "path", "required": true, "description": "name, or number where no node is called so",
			"schema": map[string]any{"type": "string"},
		})
	}
	for _, p := range o.query {
		schema := map[string]any{"type": p.kind}
		if p.kind == "date-time" {
			schema = map[string]any{"type": "string", "format": "date-time"}
		}
		out = append(out, map[string]any{"name": p.name, "in": "query", "description": p.help, "schema": schema})
	}
	if o.in != nil {
		out = append(out, map[string]any{
			"name": "Idempotency-Key", "in": "header", "description": "the command's key, when the body has none",
			"schema": map[string]any{"type": "string"},
		})
	}
	return out
}

// schemas collects the named structs that operations speak of.
type schemas map[string]any

// of gives the schema of a wire type; structs are named and referred to.
func (s schemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Struct:
		return s.object(t)
	}
	return map[string]any{"type": "integer", "format": "int64"}
}

// object names a struct's schema. Fields without omitempty are always there.
func (s schemas) object(t reflect.Type) map[string]any {
	ref := map[string]any{"$ref": "#/components/schemas/" + t.Name()}
	if _, known := s[t.Name()]; known {
		return ref
	}
	properties, required := map[string]any{}, []string{}
	s[t.Name()] = map[string]any{"type": "object"} // a struct that holds itself ends here
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		properties[name] = s.of(t.Field(i).Type)
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	s[t.Name()] = map[string]any{"type": "object", "properties": properties, "required": required}
	return ref
}
