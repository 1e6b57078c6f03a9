package ovsdb

import (
	"fmt"
	"strings"
	"testing"
)

// TestRaised: a value of nb_cfg covers what was committed before, whatever was in flight at the same time.
func TestRaised(t *testing.T) {
	one := &session{}
	for _, c := range []struct {
		what  string
		steps string // begin and end transactions: capital letters increment, followed by the value
		want  int    // 0: what was committed last may not be covered
	}{
		{"nothing", "", 0},
		{"an increment", "+A -A5", 5},
		{"a transaction before", "+b -b +A -A5", 5},
		{"a transaction afterwards", "+A -A5 +b -b", 0},
		{"a transaction in flight", "+A -A5 +b", 0},
		{"sent before, in flight", "+b +A -A5", 0},
		{"sent before, ends first", "+b +A -b -A5", 0},
		{"sent before, ends last", "+b +A -A5 -b", 0},
		{"sent afterwards, ends first", "+A +b -b -A5", 0},
		{"sent afterwards, ends last", "+A +b -A5 -b", 0},
		{"covered by the next", "+b +A -A5 -b +C -C6", 6},
		{"two increments", "+A +C -A5 -C6", 6},
		{"two increments, the later one ends first", "+A +C -C6 -A5", 6},
		{"two increments, committed in the other order", "+A +C -A6 -C5", 6},
		{"two increments, one of them with another transaction", "+b +A -b +C -C6 -A5", 0},
		{"a failure", "+A -A5 +C -C0", 0},
		{"the counter begins anew", "+A -A500 +C -C1", 1},
	} {
		r, ends := raised{}, map[byte]func(int){}
		for step := range strings.FieldsSeq(c.steps) {
			if name := step[1]; step[0] == '+' {
				ends[name] = r.begin(one, name < 'a')
			} else {
				value := 0
				_, _ = fmt.Sscan(step[2:], &value)
				ends[name](value)
			}
		}
		if value, ok := r.take(one, 0, true); ok != (c.want > 0) || ok && value != c.want {
			t.Errorf("%s: %d, %v, want %d", c.what, value, ok, c.want)
		}
		if _, ok := r.take(one, 0, true); ok {
			t.Errorf("%s: returned twice", c.what)
		}
	}
}

// TestRaisedForThoseWhoWait: other transactions do not matter to those who wait for rows that increment nb_cfg.
func TestRaisedForThoseWhoWait(t *testing.T) {
	one, r := &session{}, raised{}
	if value, ok := r.take(one, 0, false); ok {
		t.Errorf("%d, before anything was written", value)
	}
	r.begin(one, true)(5)
	r.begin(one, false)(0)
	if value, ok := r.take(one, 4, false); !ok || value != 5 {
		t.Errorf("%d, %v", value, ok)
	}
	if value, ok := r.take(one, 4, true); ok {
		t.Errorf("%d covers a later transaction", value)
	}
}

// TestRaisedBeyond: chassis may have reported greater values for a database that was lost.
func TestRaisedBeyond(t *testing.T) {
	one, r := &session{}, raised{}
	r.begin(one, true)(5)
	if value, ok := r.take(one, 5, false); ok {
		t.Errorf("%d, which may have been reported for another database", value)
	}
	r.begin(one, true)(6)
	r.exceeds(one)
	for beyond, want := range map[int]bool{5: true, 6: true, 7: false} {
		if value, ok := r.take(one, beyond, false); ok != want {
			t.Errorf("%d, %v: chassis have reported %d", value, ok, beyond)
		}
	}
	r.found(one, 6)
	if _, ok := r.take(one, 6, false); !ok {
		t.Error("the database has this value")
	}
	// The content is replaced: found out by reading, or by the next increment.
	r.found(one, 2)
	if value, ok := r.take(one, 0, false); ok {
		t.Errorf("%d, and the database has 2", value)
	}
	r.begin(one, true)(7)
	r.exceeds(one)
	r.begin(one, true)(3)
	if value, ok := r.take(one, 3, false); ok {
		t.Errorf("%d, which may have been reported before the counter began anew", value)
	}
}

// TestRaisedInAnotherSession: another session may be one to another database.
func TestRaisedInAnotherSession(t *testing.T) {
	one, other, r := &session{}, &session{}, raised{}
	r.begin(one, true)(500)
	if value, ok := r.take(other, 0, true); ok {
		t.Errorf("%d", value)
	}
	r.begin(other, true)(1)
	if value, ok := r.take(other, 0, true); !ok || value != 1 {
		t.Errorf("%d, %v", value, ok)
	}
}
