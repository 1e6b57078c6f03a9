package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// FuzzFlags gives two options arbitrary values on the command line, in the environment and
// in Open vSwitch: what is accepted is complete, and errors are one line.
func FuzzFlags(f *testing.F) {
	f.Add(0, "10.244.0.0/16/24,fd00:10:244::/48/64", 1, "10.96.0.0/16", "")
	f.Add(7, "local", 12, "123", "ssl:172.18.0.2:6641")
	for i := range config.Options {
		f.Add(i, []string{"0", "true", "1.2.3.4/33"}[i%3], i+1, "::/0", "tcp:[::1]:6642,unix:/x")
	}
	f.Fuzz(func(t *testing.T, first int, a string, second int, b, inOVS string) {
		n := len(config.Options)
		flags := map[string]string{
			config.Options[(first%n+n)%n].Flag: a, config.Options[(second%n+n)%n].Flag: b,
		}
		c, notices, err := config.Load(config.Sources{
			Flags: flags,
			LookupEnv: func(name string) (string, bool) {
				return a, strings.HasSuffix(name, "TOKEN")
			},
			ExternalIDs: func() (map[string]string, error) {
				if inOVS == "" {
					return nil, errors.New("no Open vSwitch")
				}
				return map[string]string{"ovn-remote": inOVS, "ovn-nb": inOVS, "k8s-api-server": inOVS}, nil
			},
			ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist },
		})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(notices) > 0 {
				t.Errorf("%q: error %q and %d notices", flags, err, len(notices))
			}
			return
		}
		for _, s := range c.Default.ClusterSubnets {
			if !s.CIDR.IsValid() || s.CIDR != s.CIDR.Masked() || s.HostPrefixLen < s.CIDR.Bits() || s.HostPrefixLen > s.CIDR.Addr().BitLen() {
				t.Errorf("%q: cluster subnet %v", flags, s)
			}
		}
		for _, f := range c.Families() {
			if !c.Gateway.JoinSubnet(f).IsValid() || !c.Gateway.MasqueradeSubnet(f).IsValid() {
				t.Errorf("%q: ranges of %s are missing", flags, f)
			}
		}
		c.OVNControllerIDs()
		c.Default.ClusterPrefixes()
	})
}
