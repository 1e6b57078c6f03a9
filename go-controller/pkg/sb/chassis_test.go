package sb

import (
	"testing"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

func TestDeleteChassis(t *testing.T) {
	s := ovsdbtest.StartSB(t)
	deletesChassis(t, s, nbovsdb.Config{Address: s.Socket()})
}

// TestDeleteChassisByRelay: with TLS, masters reach the southbound database through a relay.
func TestDeleteChassisByRelay(t *testing.T) {
	s := ovsdbtest.StartSB(t)
	deletesChassis(t, s, nbovsdb.Config{Address: ovsdbtest.StartRelay(t, s).Socket()})
}

func deletesChassis(t *testing.T, s *ovsdbtest.Server, at nbovsdb.Config) {
	t.Helper()
	for name, host := range map[string]string{"c1": "n1.example.com", "c2": "n2"} {
		sbctl(t, s, "chassis-add", name, "geneve", "10.0.0."+name[1:], "--", "set", "Chassis", name, "hostname="+host,
			"--", "create", "Chassis_Private", "name="+name)
	}
	for range 2 { // deleting what is gone is not an error
		if err := DeleteChassis(t.Context(), at, func(name, hostname string) bool {
			return name == "c1" && hostname == "n1.example.com"
		}); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"Chassis", "Chassis_Private"} {
			if got := sbctl(t, s, "--bare", "--columns=name", "list", table); got != "c2" {
				t.Errorf("%s holds %q, want c2", table, got)
			}
		}
		if got := sbctl(t, s, "--bare", "--columns=chassis_name", "list", "Encap"); got != "c2" {
			t.Errorf("Encap holds %q, want c2", got)
		}
	}
}
