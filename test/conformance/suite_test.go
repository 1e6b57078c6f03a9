// Package conformance is the network part of the Kubernetes end-to-end suite as a
// test program: the specs of sig-network, of the Kubernetes version that kin runs.
// It is a separate module because it depends on all of Kubernetes.
package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"go.yaml.in/yaml/v2"
	conformancetestdata "k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	_ "k8s.io/kubernetes/test/e2e/feature"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/utils/format"
)

var failures = flag.String("failures", "", "`DIR` to write what each failing spec said to")

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(conformancetestdata.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// TestNetwork runs the specs.
func TestNetwork(t *testing.T) {
	running = true
	e2e.RunE2ETests(t)
}

// running distinguishes the actual run from the framework's earlier listing of all specs.
var running bool

// The program must contain all network specs of the conformance list: if a package were
// missing above, its specs would be missed without a failure.
var _ = ginkgo.ReportAfterSuite("all conformance specs", func(report ginkgo.Report) {
	if !running {
		return
	}
	have := map[string]bool{}
	for _, spec := range report.SpecReports {
		have[spec.FullText()] = true
	}
	text, err := testfiles.Read("test/conformance/testdata/conformance.yaml")
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	var list []struct{ Testname, Codename string }
	if err := yaml.Unmarshal(text, &list); err != nil {
		ginkgo.Fail("read the list of conformance specs: " + err.Error())
	}
	for _, spec := range list {
		if strings.HasPrefix(spec.Codename, "[sig-network]") && !have[spec.Codename] {
			ginkgo.Fail("this program lacks the conformance spec " + spec.Codename)
		}
	}
})

// The output of each failing spec is written to a separate file, because it is hard to find among
// the output of all others.
var _ = ginkgo.ReportAfterSuite("what failing specs said", func(report ginkgo.Report) {
	if !running || *failures == "" {
		return
	}
	for _, spec := range report.SpecReports {
		if !spec.State.Is(types.SpecStateFailureStates) {
			continue
		}
		name := strings.Trim(notInNames.ReplaceAllString(spec.FullText(), "-"), "-")
		text := fmt.Sprintf("%s\n\n%s\n%s\n\n%s", spec.FullText(), spec.FailureLocation(), spec.FailureMessage(), spec.CapturedGinkgoWriterOutput)
		if err := os.WriteFile(filepath.Join(*failures, name[:min(len(name), 200)]+".log"), []byte(text), 0o644); err != nil {
			ginkgo.Fail("keep what a failing spec said: " + err.Error())
		}
	}
})

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)
