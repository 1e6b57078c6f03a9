package main

import "testing"

func TestReference(t *testing.T) {
	for image, want := range map[string][2]string{
		"ovnkube:latest":             {"docker.io/library/ovnkube:latest", "latest"},
		"ovnkube":                    {"docker.io/library/ovnkube:latest", "latest"},
		"team/ovnkube:v1":            {"docker.io/team/ovnkube:v1", "v1"},
		"localhost/ovnkube:v1":       {"localhost/ovnkube:v1", "v1"},
		"registry:5000/x:v1":         {"registry:5000/x:v1", "v1"},
		"registry:5000/x":            {"registry:5000/x:latest", "latest"},
		"registry.example/net/x:1.2": {"registry.example/net/x:1.2", "1.2"},
	} {
		if name, tag := reference(image); name != want[0] || tag != want[1] {
			t.Errorf("%s: %s with the tag %s, want %s", image, name, tag, want)
		}
	}
}
