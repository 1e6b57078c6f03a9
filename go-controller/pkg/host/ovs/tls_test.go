package ovs_test

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestRestoreTLS: files that somebody else had set are set again, and none if there were none, or
// only those that an earlier version of ovnkube had set.
func TestRestoreTLS(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"none": {"", ""}, "somebody else's": {"/k2 /c2 /ca2", "/k2 /c2 /ca2 {}"}, "ours": {"/k /c /ca", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := netnstest.New(t).OVS()
			if c.before != "" {
				o.Run("ovs-vsctl", append([]string{"set-ssl"}, strings.Fields(c.before)...)...)
			}
			files := func() string {
				if get(o, "get", "Open_vSwitch", ".", "ssl") == "[]" {
					return ""
				}
				row := get(o, "get", "SSL", ".", "private_key", "certificate", "ca_cert", "external_ids")
				return strings.ReplaceAll(strings.Join(strings.Fields(row), " "), `"`, "")
			}
			for range 2 { // each time by another process
				db := ovs.New(t.Context(), o.Endpoint())
				must(t, db.SetTLS(t.Context(), ovs.TLS{PrivateKey: "/k", Certificate: "/c", CACert: "/ca"}))
				if got := files(); !strings.HasPrefix(got, "/k /c /ca {ovn-kube-before=") {
					t.Errorf("TLS files are %s", got)
				}
			}
			for range 2 {
				db := ovs.New(t.Context(), o.Endpoint())
				must(t, db.RestoreTLS(t.Context()))
				if got := files(); got != c.after {
					t.Errorf("afterwards TLS files are %q, want %q", got, c.after)
				}
			}
		})
	}
}
