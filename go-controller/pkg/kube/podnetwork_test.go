package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func annotated(value string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: map[string]string{AnnotationPodNetworks: value}}}
}

// TestPodNetworkIsRefused: values that no master writes are rejected.
func TestPodNetworkIsRefused(t *testing.T) {
	const mac = `"mac_address":"0a:58:0a:f4:01:03"`
	for value, want := range map[string]string{
		``:                  "unexpected end",
		`null`:              `has no "default" network`,
		`{"default":null}`:  "has no address",
		`{"blue":{}}`:       `has no "default" network`,
		`{"default":[]}`:    "cannot unmarshal",
		`{"default":{}} {}`: "after top-level value",
		`{"default":{` + mac + `,"ip_addresses":[]}}`:                                                                                         "has no address",
		`{"default":{` + mac + `,"ip_addresses":[""]}}`:                                                                                       "is not an address of a pod",
		`{"default":{` + mac + `,"ip_address":""}}`:                                                                                           "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["0.0.0.0/0"]}}`:                                                                              "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["::/0"]}}`:                                                                                   "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["127.0.0.1/8"]}}`:                                                                            "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["224.0.0.1/24"]}}`:                                                                           "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["fe80::1/64"]}}`:                                                                             "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["fe80::1%eth0/64"]}}`:                                                                        "zone",
		`{"default":{` + mac + `,"ip_addresses":["::ffff:10.244.1.3/120"]}}`:                                                                  "is not an address of a pod",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/32"]}}`:                                                                          "length of a node's subnet",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/0"]}}`:                                                                           "length of a node's subnet",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/33"]}}`:                                                                          "prefix length out of range",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3"]}}`:                                                                             "no '/'",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24","10.244.1.4/24"]}}`:                                                          "second IPv4 address",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24","10.244.1.3/24"]}}`:                                                          "second IPv4 address",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24"],"ip_address":"10.244.1.4/24"}}`:                                             "ip_address is not",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24"],"gateway_ips":["10.244.1.1"],"gateway_ip":"10.244.1.2"}}`:                   "gateway_ip is not",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24"],"gateway_ips":["10.244.1.1","10.244.1.2"]}}`:                                "second IPv4 address",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24"],"gateway_ips":["fd00::1"]}}`:                                                "family that the pod has no address of",
		`{"default":{` + mac + `,"ip_addresses":["10.244.1.3/24"],"gateway_ips":[""]}}`:                                                       "not an address of a router",
		`{"default":{"ip_addresses":["10.244.1.3/24"]}}`:                                                                                      "not a MAC address",
		`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"x"}}`:                                                                    "not a MAC address",
		`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"ff:ff:ff:ff:ff:ff"}}`:                                                    "not a MAC address",
		`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"00:00:00:00:00:00:00:01"}}`:                                              "not a MAC address",
		`{"default":{"ip_addresses":["` + strings.Repeat("x", 1<<16) + `"],"mac_address":"0a:58:0a:f4:01:03"}}`:                               "value \"{",
		`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":` + strings.Repeat("[", 100_000) + `}}`: "exceeded max depth",
	} {
		_, ok, err := PodNetwork(annotated(value))
		if ok || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ns/web") {
			t.Errorf("%.200s: %v, %.600v, want %q", value, ok, err, want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%.100s: an error of %d bytes", value, len(err.Error()))
		}
	}
}

// TestPodNetworkOfOthers: values that the reference implementation writes are decoded.
func TestPodNetworkOfOthers(t *testing.T) {
	network, ok, err := PodNetwork(annotated(`{"default":{"ip_addresses":["10.244.1.9/24","fd00:10:244:2::9/64"],"mac_address":"0a:58:0a:f4:01:09",` +
		`"gateway_ips":["10.244.1.1","fd00:10:244:2::1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"}],"role":"primary"},"ns/other":{"ip_addresses":null}}`))
	if !ok || err != nil || len(network.Addrs) != 2 || len(network.Gateways) != 2 || network.MAC != "0a:58:0a:f4:01:09" {
		t.Errorf("%+v, %v, %v", network, ok, err)
	}
}
