package panics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCatch(t *testing.T) {
	broken := errors.New("broken")
	if err := Catch("ok", func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error became %v", err)
	}
	for name, f := range map[string]func() error{
		"value":       func() error { panic("why") },
		"error":       func() error { panic(broken) },
		"index":       func() error { return []error{}[len(name)] },
		"nil pointer": func() error { return *(*error)(nil) },
		"nil":         func() error { panic(nil) }, //nolint:govet // it is a *runtime.PanicNilError
	} {
		before := Counts()[name]
		var caught *Error
		if err := Catch(name, f); !errors.As(err, &caught) || caught.Value == nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := Counts()[name] - before; got != 1 {
			t.Errorf("%s was counted %d times", name, got)
		}
	}
	if n, known := Counts()["ok"]; n != 0 || !known {
		t.Errorf("a part without a panic has %d (%v), not 0", n, known)
	}
}

const name = "x"

func TestHandler(t *testing.T) {
	h := Handler("handler", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			panic("why")
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	for path, want := range map[string]int{"/good": http.StatusNoContent, "/bad": http.StatusInternalServerError} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want || want == http.StatusInternalServerError && !strings.Contains(w.Body.String(), "why") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
