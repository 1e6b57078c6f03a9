package ovsdbtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Dump returns all rows of the northbound database as sorted text, read by ovsdb-client. UUIDs are replaced by
// labels of the rows, and nb_cfg, which counts writes, is left out, so that databases with the same content have the
// same dump.
func (s *Server) Dump() string {
	s.t.Helper()
	dec := json.NewDecoder(strings.NewReader(run(s.t, "ovsdb-client", "-f", "json", "dump", s.Socket(), "OVN_Northbound")))
	var all []dumpTable
	for {
		var t dumpTable
		err := dec.Decode(&t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.t.Fatalf("read dump: %v", err)
		}
		all = append(all, t)
	}
	labels := map[string]string{}
	for _, t := range all {
		for _, row := range t.Data {
			labels[t.uuid(row)] = t.label(row)
		}
	}
	var lines []string
	for _, t := range all {
		for _, row := range t.Data {
			var cols []string
			for i, column := range t.Headings {
				if v := render(row[i], labels); column != "_uuid" && column != "nb_cfg" && v != "" {
					cols = append(cols, column+"="+v)
				}
			}
			slices.Sort(cols)
			lines = append(lines, strings.TrimSuffix(t.Caption, " table")+": "+strings.Join(cols, " ")+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// dumpTable is one table in the output of ovsdb-client dump.
type dumpTable struct {
	Caption  string
	Headings []string
	Data     [][]any
}

func (t dumpTable) cell(row []any, column string) any {
	if i := slices.Index(t.Headings, column); i >= 0 {
		return row[i]
	}
	return nil
}

func (t dumpTable) uuid(row []any) string {
	pair, _ := t.cell(row, "_uuid").([]any)
	uuid, _ := pair[1].(string)
	return uuid
}

// label returns a row's label: its id if it is ours, else its name.
func (t dumpTable) label(row []any) string {
	for _, pair := range elements(t.cell(row, "external_ids")) {
		if kv, ok := pair.([]any); ok && kv[0] == "k8s.ovn.org/id" {
			return fmt.Sprintf("<%v>", kv[1])
		}
	}
	return fmt.Sprintf("<%v>", t.cell(row, "name"))
}

// elements returns the elements of a set or map.
func elements(v any) []any {
	if pair, ok := v.([]any); ok && len(pair) == 2 && (pair[0] == "set" || pair[0] == "map") {
		list, _ := pair[1].([]any)
		return list
	}
	return nil
}

// render renders a value, "" if it is empty.
func render(v any, labels map[string]string) string {
	pair, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	if pair[0] == "uuid" {
		return labels[pair[1].(string)]
	}
	var items []string
	for _, e := range elements(v) {
		if kv, ok := e.([]any); ok && pair[0] == "map" {
			items = append(items, fmt.Sprintf("%v=%v", kv[0], kv[1]))
		} else {
			items = append(items, render(e, labels))
		}
	}
	slices.Sort(items)
	return strings.Join(items, ",")
}
