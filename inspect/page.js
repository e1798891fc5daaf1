"use strict";
// The page fetches itself every second while somebody looks at it, and keeps open what the
// reader has opened.
{
	const status = document.getElementById("status"), pause = document.getElementById("pause");
	let paused = false;
	pause.hidden = false;
	pause.onclick = () => {
		paused = !paused;
		pause.textContent = paused ? "Go on" : "Pause";
	};
	// A reader of the screen hears what has become of the pools, but not each figure.
	const said = document.getElementById("said");
	let last = "";
	const say = () => {
		const rules = Array.from(document.querySelectorAll(".pool"), (pool) => pool.dataset.rule).join();
		if (last !== "" && rules !== last) {
			said.textContent = Array.from(document.querySelectorAll(".verdict"), (verdict) => verdict.textContent).join(" ");
		}
		last = rules;
	};
	say();
	const refresh = async () => {
		const answer = await fetch(location.href, {cache: "no-store"});
		if (!answer.ok) throw new Error("the program answers " + answer.status);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		for (const open of document.querySelectorAll("details[open]")) {
			const same = page.getElementById(open.id);
			if (same) same.open = true;
		}
		const focused = document.activeElement.closest("[id]");
		document.querySelector("main").replaceWith(page.querySelector("main"));
		if (focused && focused !== document.activeElement) {
			const same = document.getElementById(focused.id);
			if (same) (same.querySelector(":scope > summary") || same).focus({preventScroll: true});
		}
		document.title = page.title;
		status.textContent = page.getElementById("status").textContent;
		status.className = "";
		say();
	};
	const selecting = () => !getSelection().isCollapsed;
	const next = async () => {
		if (!paused && !document.hidden && !selecting()) {
			try {
				await refresh();
			} catch (err) {
				status.textContent = "No answer since then: " + err.message;
				status.className = "lost";
			}
		}
		setTimeout(next, 1000);
	};
	setTimeout(next, 1000);
}
