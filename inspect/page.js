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
	const refresh = async () => {
		const answer = await fetch(location.href, {cache: "no-store"});
		if (!answer.ok) throw new Error("the program answers " + answer.status);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		for (const open of document.querySelectorAll("details[open]")) {
			const same = page.getElementById(open.id);
			if (same) same.open = true;
		}
		document.querySelector("main").replaceWith(page.querySelector("main"));
		status.textContent = page.getElementById("status").textContent;
		status.className = "";
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
