package config

import (
	"fmt"
	"io"
	"strings"
)

const docHead = `# Configuration

<!-- Generated from the table of options by hack/configdocs; do not edit. -->

` + "`ovnkube`" + ` takes its settings from these places; the first that has a setting wins:

1. flags on the command line;
2. the configuration file, ` + "`--config-file FILE`" + `, or ` + "`/etc/openvswitch/ovn_k8s.conf`" + ` where that exists;
3. environment variables;
4. the ` + "`external_ids`" + ` of the local Open vSwitch, with ` + "`--init-node`" + ` and ` + "`--cleanup-node`" + ` only;
5. the defaults below.

A node whose southbound address has none of the sources 1 to 3 waits at start, and logs that, until Open vSwitch answers: the address is written to ` + "`ovn-remote`" + ` in ` + "`external_ids`" + `, and
the default must not replace one that could not be read. Until then it answers no probes. If the Open vSwitch database was lost, a setting that was in its ` + "`external_ids`" + ` is taken from the node's record of them, ` + "`/var/lib/ovn-kubernetes/node.json`" + `.

If a flag replaces a different value of the file, the log has both values at start (of a token, neither). The manifests set the gateway mode, the addresses of listeners,
the masters' databases, and keys and certificates by flags: change these in the manifests, not in the file.

Names and formats are those of OVN-Kubernetes, so that a command line or a file written for it can be used as it is. Where it
asks for something this program does not do and ignoring that is harmless, the setting is accepted and the log says at start
that it has no effect; those settings are listed too. A flag, section or key that is not listed, a value that is not allowed, and
address ranges that overlap end the program with status 1 and one line that names the setting, its value and what is allowed.

What the process is, is said on the command line only:

| flag | meaning |
| --- | --- |
| ` + "`--init-master NAME`" + ` | be a master, under the name of this node; masters elect a leader |
| ` + "`--init-node NAME`" + ` | be the node of that name; goes together with ` + "`--init-master`" + ` |
| ` + "`--cleanup-node NAME`" + ` | take everything off the host that ` + "`--init-node`" + ` put there, and end |

The file consists of sections and ` + "`key=value`" + ` lines. Section and key names may be written in capitals. A value may stand in double
quotes; ` + "`#`" + ` and ` + "`;`" + ` start a comment. A key that takes true or false may stand without a value and means true then. Of a key that
is given twice the last one counts.
`

const docTail = `
## Rules across settings

- The ranges of ` + "`--cluster-subnets`, `--k8s-service-cidrs`" + `, the join subnets and the masquerade subnets share no address.
- There is one service range for each address family of ` + "`--cluster-subnets`" + `; the families make the cluster IPv4, IPv6 or dual stack.
- With IPv6 the MTU is at least 1280.
- Next hops are of the cluster's families.
- ` + "`ssl:`" + ` addresses of a database need its private key, certificate and certificate authority; other addresses take none.
- A private key belongs to its certificate, and files of certificates and authorities have at least one certificate. Only the files of ` + "`--node-server-privkey` and `--node-server-cert`" + ` may be missing or unusable at start.
- The renew deadline of the leader election is less than the lease duration, and the retry period less than the renew deadline divided by 1.2.
- ` + "`--node-server-privkey` and `--node-server-cert`" + ` are given together or not at all.
- ` + "`--egress-page-privkey` and `--egress-page-cert`" + ` likewise; ` + "`--egress-page-bind-address`" + ` needs them unless it is a loopback address.
`

// Markdown writes the reference of all options: docs/configuration.md.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docHead)
	sections := append([]string{""}, Sections()...)
	for _, section := range sections {
		title := "## On the command line only"
		if section != "" {
			title = "## [" + section + "]"
		}
		fmt.Fprintf(&b, "\n%s\n\n| key, flag | default | meaning |\n| --- | --- | --- |\n", title)
		for _, o := range Options {
			if o.Section == section {
				b.WriteString(o.row())
			}
		}
	}
	b.WriteString(docTail)
	_, err := io.WriteString(w, b.String())
	return err
}

// row is the option's line in a Markdown table.
func (o *Option) row() string {
	var names []string
	if o.Key != "" {
		names = append(names, code(o.Key))
	}
	if o.Flag != "" {
		names = append(names, code("--"+o.Flag))
	}
	for _, n := range []struct{ text, value string }{
		{"environment ", o.Env},
		{"external_ids ", o.ExternalID},
		{"formerly --", o.OldFlag},
		{"formerly --", o.OldSwitch},
		{"formerly " + o.OldSection + ":", o.OldKey},
	} {
		if n.value != "" {
			names = append(names, code(n.text+n.value))
		}
	}
	value := ""
	if o.Default != "" {
		value = code(o.Default)
	}
	meaning := o.Usage + ". Allowed: " + o.Allowed() + "."
	if o.NoEffect != "" {
		meaning += " **No effect**: " + o.NoEffect + "."
	}
	return fmt.Sprintf("| %s | %s | %s |\n", strings.Join(names, "<br>"), value, strings.ReplaceAll(meaning, "|", `\|`))
}

func code(s string) string { return "`" + s + "`" }
