#!/usr/bin/env bash
# Replaces the outdated pods of clustered databases one by one, and ends when all three are up to date and ready. It
# can be interrupted and repeated.
#
#   dist/components/ha/update.sh [ARG...]     # arguments of kubectl, such as --context=NAME
#
# NAMESPACE is the namespace of ovnkube, ovn-kubernetes by default.
#
# Pods are evicted, not deleted: the API server refuses that while another pod is not ready, so that a majority
# stays. It permits it for a pod that is not ready itself, which an update may repair.
set -euo pipefail
namespace=${NAMESPACE:-ovn-kubernetes}
kubectl=(kubectl "$@" --namespace="$namespace")

said=
say() { # once, until something else is said
	[[ $1 == "$said" ]] || echo "$1"
	said=$1
}

evict() { # POD
	"${kubectl[@]}" create --raw "/api/v1/namespaces/$namespace/pods/$1/eviction" --filename=- \
		<<<"{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {\"namespace\": \"$namespace\", \"name\": \"$1\"}}"
}

while true; do
	now=$("${kubectl[@]}" get statefulset ovn-databases \
		--output='jsonpath={.metadata.generation} {.status.observedGeneration} {.status.updateRevision} {.spec.replicas}')
	read -r generation observed revision replicas <<<"$now"
	if [[ $observed != "$generation" ]]; then # the revision is that of the previous manifests
		say "waiting for Kubernetes to notice the change"
		sleep 1
		continue
	fi
	outdated=$("${kubectl[@]}" get pods --selector="app=ovn-databases,controller-revision-hash!=$revision" \
		--output='jsonpath={range .items[*]}{.metadata.name}={.metadata.deletionTimestamp} {end}')
	[[ $outdated ]] || break
	refused=
	for entry in $outdated; do
		pod=${entry%%=*}
		[[ $entry == "$pod=" ]] || continue # it is being deleted
		if answer=$(evict "$pod" 2>&1); then
			say "$pod is evicted"
			refused=
			break
		fi
		case $answer in
		*TooManyRequests* | *NotFound* | *Conflict*) refused+="$pod is not evicted yet: $answer"$'\n' ;;
		*)
			echo "cannot evict $pod: $answer" >&2
			exit 1
			;;
		esac
	done
	[[ -z $refused ]] || say "${refused%$'\n'}"
	sleep 2
done

say "waiting for $replicas pods to be ready"
# Once it has replaced all pods, the number of ready pods is that of these.
"${kubectl[@]}" wait --for="jsonpath={.status.updatedReplicas}=$replicas" --timeout=10m statefulset/ovn-databases
"${kubectl[@]}" wait --for="jsonpath={.status.readyReplicas}=$replicas" --timeout=10m statefulset/ovn-databases
