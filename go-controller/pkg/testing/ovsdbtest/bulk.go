package ovsdbtest

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// Bulk writes all that is in the northbound database of a server into one of its
// own, as a single transaction that is ready to be sent, and returns how long the
// server took: what a benchmark of writing the same rows compares with. Where
// monitored is set, a client that throws away what it hears monitors all of it, as
// every writer with a cache does.
func (s *Server) Bulk(monitored bool) time.Duration {
	s.t.Helper()
	tables := s.rows()
	params, rows := []any{"OVN_Northbound"}, map[string]int{}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		for _, row := range tables[table] {
			uuid := row["_uuid"].([]any)[1].(string)
			params = append(params, map[string]any{"op": "insert", "table": table, "uuid-name": nameOf(uuid), "row": insertable(row)})
		}
		rows[table] = len(tables[table])
	}
	fresh := StartNB(s.t)
	defer fresh.Kill()
	if monitored {
		c := fresh.dial()
		defer c.Close()
		columns := map[string]any{}
		for table := range tables {
			columns[table] = []any{map[string]any{}}
		}
		roundTrip(s.t, c, request(s.t, "monitor_cond", []any{"OVN_Northbound", "all", columns}))
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	c := fresh.dial()
	defer c.Close()
	transaction := request(s.t, "transact", params)
	start := time.Now()
	reply := roundTrip(s.t, c, transaction)
	took := time.Since(start)
	var results []struct{ Error, Details string }
	decode(s.t, reply, &results)
	for _, r := range results {
		if r.Error != "" {
			s.t.Fatalf("transaction refused: %s: %s", r.Error, r.Details)
		}
	}
	for table, list := range fresh.rows() {
		if len(list) != rows[table] {
			s.t.Fatalf("%d rows of %s, want %d", len(list), table, rows[table])
		}
	}
	return took
}

// rows returns all rows of all tables, but for those that every database has.
func (s *Server) rows() map[string][]map[string]any {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	var schema struct{ Tables map[string]any }
	decode(s.t, roundTrip(s.t, c, request(s.t, "get_schema", []any{"OVN_Northbound"})), &schema)
	delete(schema.Tables, "NB_Global")
	names, params := slices.Sorted(maps.Keys(schema.Tables)), []any{"OVN_Northbound"}
	for _, name := range names {
		params = append(params, map[string]any{"op": "select", "table": name, "where": []any{}})
	}
	var selected []struct{ Rows []map[string]any }
	decode(s.t, roundTrip(s.t, c, request(s.t, "transact", params)), &selected)
	out := map[string][]map[string]any{}
	for i, table := range selected {
		out[names[i]] = table.Rows
	}
	return out
}

// insertable returns the columns of a row that a client would insert: not those
// that have the value they get anyway.
func insertable(row map[string]any) map[string]any {
	columns := map[string]any{}
	for name, value := range row {
		list, composite := value.([]any)
		switch {
		case name == "_uuid", name == "_version", value == "", value == false, value == 0.0:
		case composite && list[0] != "uuid" && len(list[1].([]any)) == 0:
		default:
			columns[name] = named(value)
		}
	}
	return columns
}

// named refers to rows by the names they have in the transaction.
func named(value any) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	if len(list) == 2 && list[0] == "uuid" {
		return []any{"named-uuid", nameOf(list[1].(string))}
	}
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = named(v)
	}
	return out
}

func nameOf(uuid string) string { return "r" + strings.ReplaceAll(uuid, "-", "_") }

func (s *Server) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.socketPath())
	if err != nil {
		s.t.Fatalf("connect to ovsdb-server: %v", err)
	}
	return c
}

func request(t testing.TB, method string, params any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"method": method, "params": params, "id": 1})
	if err != nil {
		t.Fatalf("encode request: %v", err)
	}
	return text
}

// roundTrip sends a request and returns its result.
func roundTrip(t testing.TB, c net.Conn, request []byte) json.RawMessage {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatalf("send to ovsdb-server: %v", err)
	}
	var reply struct {
		Error  any
		Result json.RawMessage
	}
	if err := json.NewDecoder(c).Decode(&reply); err != nil || reply.Error != nil {
		t.Fatalf("ovsdb-server answered %v: %v", reply.Error, err)
	}
	return reply.Result
}

func decode(t testing.TB, text json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("read answer of ovsdb-server: %v", err)
	}
}
