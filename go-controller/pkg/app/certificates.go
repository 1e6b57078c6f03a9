package app

import (
	"errors"
	"io/fs"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// expirations returns when the certificates of this process and the authorities that it trusts expire, by file. The
// files are read each time, as for connections: whoever renews certificates replaces them.
func expirations(cfg config.Config) map[string]time.Time {
	files := []string{cfg.Metrics.ServerCert, cfg.Page.Cert}
	for _, d := range []config.Database{cfg.OVNNorth, cfg.OVNSouth} {
		if d.Secure() {
			files = append(files, d.Cert, d.CACert)
		}
	}
	out := map[string]time.Time{}
	for _, file := range files {
		if file == "" {
			continue
		}
		expires, err := pki.Expiration(file)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // a node uses no northbound database, and has no certificate for it
				klog.ErrorS(err, "Cannot tell when a certificate expires")
			}
			continue
		}
		out[file] = expires
	}
	return out
}
